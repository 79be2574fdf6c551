// Exceptions for single keys: blocked, allowed, or with a limit of their own.
"use strict";

const { UsageError } = require("./errors.js");
const { known } = require("./options.js");

const OPTIONS = ["by", "duration", "until", "reason", "madeBy"];

/** An exception as the addon takes it; a grant has a limit. */
function given(kind, rule, key, options, limit) {
  known(`limiter.${kind}`, options, limit === undefined ? OPTIONS : ["burst", ...OPTIONS]);
  const { by, duration, until, reason, madeBy, burst } = options;
  if (duration !== undefined && typeof duration !== "number" && typeof duration !== "string") {
    throw new UsageError(`duration: ${duration} is not a duration; write seconds, or a string such as "1h"`);
  }
  // Numbers are not taken: some would be milliseconds, some seconds.
  if (until !== undefined && !(until instanceof Date)) throw new UsageError(`until: must be a Date, not ${until}`);
  return { kind, rule: String(rule), key: String(key), by, duration, until: until && until.getTime() / 1000, reason, madeBy, limit, burst };
}

/** The exceptions in a text of the addon. */
function listed(text) {
  return JSON.parse(text).map((one) => ({ ...one, since: new Date(one.since), until: one.until === null ? null : new Date(one.until) }));
}

/** The only one, or null. */
function single(text) {
  return listed(text)[0] ?? null;
}

module.exports = { given, listed, single };
