// One quota, any key, in this process: the shortest path to a decision.
"use strict";

const addon = require("./addon.js");
const { cost: checked } = require("./attributes.js");
const { ConfigError, understood } = require("./errors.js");
const { known } = require("./options.js");
const { native } = require("./quota.js");

// What the addon writes of a decision: limit, remaining, retryAfter, resetAfter, delay, slot.
const numbers = new Float64Array(7);

/** Releases the slot of a decision. */
let release;

/** The answer for one key. */
class Decision {
  #at;
  #nth;

  constructor(allowed) {
    /** Whether it passes. */
    this.allowed = allowed;
    /** The burst of a bucket, or N. */
    this.limit = numbers[0];
    /** What is left after this decision. */
    this.remaining = numbers[1];
    /** Seconds until the same request passes: 0 when it passes, null when it never can. */
    this.retryAfter = numbers[2] < 0 ? null : numbers[2];
    /** Seconds until the key is as if never used. */
    this.resetAfter = numbers[3];
    /** Seconds that an admitted request has to wait for its turn: `leaky_bucket` only. */
    this.delay = numbers[4];
    this.#at = numbers[5];
    this.#nth = numbers[6];
  }

  static {
    release = (keyed, key, decision) => decision.#at >= 0 && keyed.release(key, decision.#at, decision.#nth);
  }
}

/** One quota for every key; `keyed` makes one. */
class Keyed {
  #check;
  #keyed;
  #text;

  constructor(quota, options = {}) {
    known("keyed", options, ["maxKeys", "onFull", "clock"]);
    const { maxKeys, onFull = "local", clock } = options;
    // As a number of the addon, -1 would be four billion.
    if (maxKeys !== undefined && !(Number.isInteger(maxKeys) && maxKeys >= 1 && maxKeys <= 0xffffffff)) {
      throw new ConfigError(`maxKeys: ${maxKeys} is not a whole number from 1 to 4294967295`);
    }
    const proven = native(quota);
    try {
      this.#keyed = new addon.Keyed(proven, maxKeys, onFull, clock);
    } catch (error) {
      throw understood(error);
    }
    this.#check = this.#keyed.checker(numbers);
    this.#text = proven.text();
  }

  /** Decides a request; cost 0 peeks. */
  check(key, cost) {
    const charge = cost === undefined ? 1 : checked(cost);
    const check = this.#check;
    if (typeof key === "string" || typeof key === "number") return new Decision(check(key, charge));
    return new Decision(this.#keyed.checkBytes(proven(key), charge, numbers));
  }

  /** The answer to a request of cost 1 now; nothing is charged. */
  peek(key) {
    return new Decision(this.#keyed.peek(proven(key), numbers));
  }

  /** Resets a key; false when there was nothing to reset. */
  reset(key) {
    return this.#keyed.reset(proven(key));
  }

  /** Releases the slot of an admitted request: for `concurrency`. False when it was already free. */
  release(key, decision) {
    return release(this.#keyed, proven(key), decision);
  }

  /** The number of keys kept, some of which may be idle by now. */
  get size() {
    return this.#keyed.size;
  }

  toString() {
    return `keyed("${this.#text}")`;
  }
}

/** A key is a text, a number or bytes: `"1"` and `1` are two keys. */
function proven(key) {
  if (typeof key === "string" || typeof key === "number" || key instanceof Uint8Array) return key;
  throw new TypeError(`a key must be a string, a number or a Uint8Array, not ${key === null ? "null" : typeof key}`);
}

/** Limits each key by the same quota, in this process: `keyed("10/s burst 20").check(key)`. */
function keyed(quota, options) {
  return new Keyed(quota, options);
}

module.exports = { keyed, Keyed, Decision };
