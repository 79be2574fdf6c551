// What operators should know, as Node reports warnings: on stderr, and to `process.on("warning")`.
"use strict";

/** Codes, the same in all versions. */
const SETTING = "TOLLKEEPER_SETTING";
const PROXY = "TOLLKEEPER_PROXY";
const STORE = "TOLLKEEPER_STORE";
const TRUST_PROXY = "TOLLKEEPER_TRUST_PROXY";

function warn(message, code) {
  try {
    process.emitWarning(message, { type: "TollkeeperWarning", code });
  } catch (error) {
    // An `emitWarning` of the application. Its errors are reported as if it had failed later, when Node emits warnings: no request fails.
    process.nextTick(() => {
      throw error;
    });
  }
}

module.exports = { PROXY, SETTING, STORE, TRUST_PROXY, warn };
