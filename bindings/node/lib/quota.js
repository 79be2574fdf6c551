"use strict";

const addon = require("./addon.js");
const { understood } = require("./errors.js");
const { known } = require("./options.js");

/** The addon's quota, of a `Quota` or of a text. */
let native;

/** An algorithm and its numbers, checked to be counted exactly: `new Quota("10/s burst 20")`. */
class Quota {
  #quota;

  constructor(text) {
    if (typeof text !== "string") throw new TypeError(`a quota must be a string such as "10/s burst 20" or a Quota, not ${text}`);
    try {
      this.#quota = new addon.Quota(text);
    } catch (error) {
      throw understood(error);
    }
  }

  static perSecond(count, options) {
    return of(`${count}/s`, options);
  }

  static perMinute(count, options) {
    return of(`${count}/min`, options);
  }

  static perHour(count, options) {
    return of(`${count}/h`, options);
  }

  static perDay(count, options) {
    return of(`${count}/day`, options);
  }

  /** At most this many at the same time; unreleased slots expire after `hold`. */
  static concurrent(count, { hold = "60s" } = {}) {
    return new Quota(`${count} algorithm concurrency hold ${hold}`);
  }

  get algorithm() {
    return this.#quota.algorithm;
  }

  /** N of `N per period`. */
  get count() {
    return this.#quota.count;
  }

  /** The period in seconds. */
  get period() {
    return this.#quota.period;
  }

  /** The most that can pass at once: the burst of a bucket, or N. */
  get limit() {
    return this.#quota.limit;
  }

  toString() {
    return this.#quota.text();
  }

  static {
    native = (quota) => (quota instanceof Quota ? quota : new Quota(quota)).#quota;
  }
}

function of(text, options = {}) {
  known("Quota", options, ["burst", "algorithm"]);
  const { burst, algorithm } = options;
  if (burst !== undefined) text += ` burst ${burst}`;
  if (algorithm !== undefined) text += ` algorithm ${algorithm}`;
  return new Quota(text);
}

module.exports = { Quota, native };
