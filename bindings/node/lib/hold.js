// What a request holds until it is over: slots, and estimates that are to be corrected.
"use strict";

const { promised } = require("./answers.js");
const { pairs } = require("./attributes.js");
const { Verdict } = require("./verdict.js");

/** The slots of a request. Those of a denied one are none: look at `permit.allowed`. */
class Permit {
  #held;

  constructor(answer) {
    /** The verdict. */
    this.verdict = new Verdict(answer);
    this.#held = answer[4];
  }

  /** Whether the request may pass. */
  get allowed() {
    return this.verdict.allowed;
  }

  /** Gives the slots back. Once is enough, and more does no harm. */
  release() {
    this.#held.release();
  }
}

/** An estimate that was charged, until `settle` tells what it did cost. Left without that, the estimate stays charged. */
class Reservation {
  #estimated;
  #isRemote;

  constructor(answer, isRemote) {
    /** The verdict on the estimate. */
    this.verdict = new Verdict(answer);
    this.#estimated = answer[4];
    this.#isRemote = isRemote;
  }

  /** Whether the request may pass. */
  get allowed() {
    return this.verdict.allowed;
  }

  /** Corrects the estimate to what was used: a cost, attributes that carry costs, or both. */
  settle(cost, attributes) {
    const ask = (ticket) => this.#estimated.settle(cost ?? null, pairs(attributes ?? {}), ticket);
    return promised(this.#isRemote, ask, JSON.parse);
  }

  /** Leaves the estimate charged, and gives slots back. */
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
