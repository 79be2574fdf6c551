"use strict";

const addon = require("./addon.js");

/** A clock that stands still until it is moved, for tests: give it to `keyed` or to a `Limiter`. */
class ManualClock extends addon.ManualClock {
  constructor(now = 1_700_000_000) {
    super(now);
  }
}

module.exports = { ManualClock };
