"use strict";

const AT_ONCE = 48; // "0"
const DENIED = 50; // "2"

/** The answer for a request. Its details are parsed on demand. */
class Verdict {
  #details;
  #text;

  /** From the text of the addon: see `src/verdict.rs`. */
  constructor(text) {
    const outcome = text.charCodeAt(0);
    /** Whether the request may pass. */
    this.allowed = outcome !== DENIED;
    /** Seconds until the same request passes: 0 when it passes, null when it never can. */
    this.retryAfter = 0;
    /** Seconds that an admitted request has to wait for its turn: `leaky_bucket` only. */
    this.delay = 0;
    this.#text = text;
    if (outcome === AT_ONCE) return;
    const [retryAfter, delay] = text.slice(1, text.indexOf("{")).split("\n");
    this.retryAfter = retryAfter === "" ? null : Number(retryAfter);
    this.delay = Number(delay);
  }

  get #read() {
    return (this.#details ??= JSON.parse(this.#text.slice(this.#text.indexOf("{"))));
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
