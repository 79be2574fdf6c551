"use strict";

/** The answer for a request. Its details are parsed on demand. */
class Verdict {
  #details;
  #json;

  constructor([allowed, retryAfter, delay, json]) {
    /** Whether the request may pass. */
    this.allowed = allowed;
    /** Seconds until the same request passes: 0 when it passes, null when it never can. */
    this.retryAfter = retryAfter ?? null;
    /** Seconds that an admitted request has to wait for its turn: `leaky_bucket` only. */
    this.delay = delay;
    this.#json = json;
  }

  get #read() {
    return (this.#details ??= JSON.parse(this.#json));
  }

  /** The name of the rule that denies, or null. */
  get limiting() {
    return this.#read.limiting;
  }

  /** What answered: `store`, `deny_cache`, `lease`, `local`, `policy` or `exception`. */
  get source() {
    return this.#read.source;
  }

  /** Denied because the store could not answer, not because a limit was reached. */
  get unavailable() {
    return this.#read.unavailable;
  }

  /** One per rule that applied, in their order. */
  get rules() {
    return this.#read.rules;
  }

  /** The limit headers, and `retry-after` if waiting helps; names in lower case. */
  get headers() {
    return this.#read.headers;
  }

  toJSON() {
    const { allowed, retryAfter, delay } = this;
    return { allowed, retryAfter, delay, ...this.#read };
  }

  [Symbol.for("nodejs.util.inspect.custom")](_depth, options, inspect) {
    return `Verdict ${inspect(this.toJSON(), options)}`;
  }
}

module.exports = { Verdict };
