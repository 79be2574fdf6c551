// What a request holds until it ends: slots, and unsettled estimates.
"use strict";

const { promised } = require("./answers.js");
const { cost: charge, pairs } = require("./attributes.js");
const { Verdict } = require("./verdict.js");

/** The slots of a request. A denied request has none: check `permit.allowed`. */
class Permit {
  #held;

  constructor(answer) {
    /** The verdict. */
    this.verdict = new Verdict(answer[0]);
    this.#held = answer[1];
  }

  /** Whether the request may pass. */
  get allowed() {
    return this.verdict.allowed;
  }

  /** Releases the slots. Calling it again does nothing. */
  release() {
    this.#held.release();
  }
}

/** An estimate that was charged, until `settle` gives the actual cost. Without that, the estimate stays charged. */
class Reservation {
  #estimated;
  #isRemote;

  constructor(answer, isRemote) {
    /** The verdict on the estimate. */
    this.verdict = new Verdict(answer[0]);
    this.#estimated = answer[1];
    this.#isRemote = isRemote;
  }

  /** Whether the request may pass. */
  get allowed() {
    return this.verdict.allowed;
  }

  /** Corrects the estimate to the actual usage: a cost, attributes that carry costs, or both. */
  settle(cost, attributes) {
    const ask = (ticket) => this.#estimated.settle(cost == null ? null : charge(cost), pairs(attributes ?? {}), ticket);
    return promised(this.#isRemote, ask, JSON.parse);
  }

  /** Leaves the estimate charged, and releases slots. */
  release() {
    this.#estimated.release();
  }
}

// `using` and `await using`, where the runtime has them.
for (const Class of [Permit, Reservation]) {
  const { release } = Class.prototype;
  if (Symbol.dispose) Object.defineProperty(Class.prototype, Symbol.dispose, { value: release });
  if (Symbol.asyncDispose) {
    const value = async function () {
      this.release();
    };
    Object.defineProperty(Class.prototype, Symbol.asyncDispose, { value });
  }
}

module.exports = { Permit, Reservation };
