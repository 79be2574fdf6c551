"use strict";

const { Record } = require("./record.js");

const DENIED = 50; // "2"

/** What a verdict says beside whether the request may pass, read when it is first asked for. */
let read;

/** The answer for a request. Its details are read on demand. */
class Verdict {
  #details;
  #text;

  /** From a record of the addon: see `src/verdict.rs`. */
  constructor(text) {
    /** Whether the request may pass. */
    this.allowed = text.charCodeAt(0) !== DENIED;
    this.#text = text;
  }

  /** Seconds until the same request passes: 0 when it passes, null when it never can. */
  get retryAfter() {
    return read(this).retryAfter;
  }

  /** Seconds that an admitted request has to wait for its turn: `leaky_bucket` only. */
  get delay() {
    return read(this).delay;
  }

  /** The name of the rule that denies, or null. */
  get limiting() {
    return read(this).limiting;
  }

  /** What answered: `store`, `deny_cache`, `lease`, `local`, `policy` or `exception`. */
  get source() {
    return read(this).source;
  }

  /** Denied because the store could not answer, not because a limit was reached. */
  get unavailable() {
    return read(this).unavailable;
  }

  /** One per rule that applied, in their order. */
  get rules() {
    return read(this).rules;
  }

  /** The soft limits (`mode: annotate`) that the request is over, in the order of the rules. */
  get annotations() {
    return read(this).annotations;
  }

  /** The limit headers, and `retry-after` if waiting helps; names in lower case. */
  get headers() {
    return read(this).headers;
  }

  // Not a private getter: those cost every instance a property.
  static {
    read = (verdict) => (verdict.#details ??= details(new Record(verdict.#text, 1)));
  }

  toJSON() {
    return { allowed: this.allowed, ...read(this) };
  }

  [Symbol.for("nodejs.util.inspect.custom")](_depth, options, inspect) {
    return `Verdict ${inspect(this.toJSON(), options)}`;
  }
}

// Values are evaluated in the order of the record.
function details(record) {
  const found = {
    retryAfter: record.wait(),
    delay: record.time(),
    limiting: record.text() || null,
    source: record.text(),
    unavailable: record.flag(),
    rules: Array.from({ length: record.number() }, () => row(record)),
    annotations: Array.from({ length: record.number() }, () => annotation(record)),
    headers: {},
  };
  while (!record.isOver) found.headers[record.text()] = record.text();
  return found;
}

function row(record) {
  const rule = record.text();
  const hasScope = record.flag();
  const scope = record.text();
  return {
    rule,
    scope: hasScope ? scope : null,
    key: record.text(),
    allowed: record.flag(),
    shadow: record.flag(),
    limit: record.number(),
    remaining: record.number(),
    retryAfter: record.wait(),
    resetAfter: record.time(),
    delay: record.time(),
    source: record.text(),
    exception: record.text() || null,
  };
}

function annotation(record) {
  return { rule: record.text(), limit: record.number(), overBy: record.number(), retryAfter: record.wait() };
}

module.exports = { Verdict };
