// Errors. A denial is not an error: it is an answer. Every error has a `code`, the same in all versions.
"use strict";

/** Anything that this package throws. */
class TollkeeperError extends Error {
  constructor(message, code = "ERR_TOLLKEEPER") {
    super(message);
    this.name = this.constructor.name;
    this.code = code;
  }
}

/** An invalid rule, quota or limit. */
class RuleError extends TollkeeperError {
  constructor(message) {
    super(message, "ERR_TOLLKEEPER_RULE");
  }
}

/** An invalid file or setting. */
class ConfigError extends TollkeeperError {
  constructor(message) {
    super(message, "ERR_TOLLKEEPER_CONFIG");
  }
}

/** An attribute that should hold a cost is not a number. */
class CostError extends TollkeeperError {
  constructor(message) {
    super(message, "ERR_TOLLKEEPER_COST");
  }
}

/** A request that cannot be read, or that identifies its client in two ways. */
class RequestError extends TollkeeperError {
  constructor(message) {
    super(message, "ERR_TOLLKEEPER_REQUEST");
  }
}

/** A store that cannot be used. */
class StoreError extends TollkeeperError {
  constructor(message) {
    super(message, "ERR_TOLLKEEPER_STORE");
  }
}

/** A request that was neither allowed nor denied, because too many were waiting for a decision. Try again in a second. */
class OverloadedError extends TollkeeperError {
  constructor(message) {
    super(message, "ERR_TOLLKEEPER_OVERLOADED");
  }
}

/** A limit by address, but the server provides no address for the request. */
class AddressError extends TollkeeperError {
  constructor(message) {
    super(message, "ERR_TOLLKEEPER_ADDRESS");
  }
}

/** An invalid call, such as settling twice. */
class UsageError extends TollkeeperError {
  constructor(message) {
    super(message, "ERR_TOLLKEEPER_USAGE");
  }
}

const CLASSES = {
  ERR_TOLLKEEPER_RULE: RuleError,
  ERR_TOLLKEEPER_CONFIG: ConfigError,
  ERR_TOLLKEEPER_COST: CostError,
  ERR_TOLLKEEPER_REQUEST: RequestError,
  ERR_TOLLKEEPER_STORE: StoreError,
  ERR_TOLLKEEPER_OVERLOADED: OverloadedError,
  ERR_TOLLKEEPER_ADDRESS: AddressError,
  ERR_TOLLKEEPER_USAGE: UsageError,
};

/** Converts an error of the addon to one of these. Others are type errors of the caller. */
function understood(error) {
  if (error instanceof TollkeeperError) return error;
  const Class = CLASSES[error?.code];
  if (Class) return new Class(error.message);
  return error instanceof TypeError ? error : new TypeError(error.message, { cause: error });
}

module.exports = {
  TollkeeperError,
  RuleError,
  ConfigError,
  CostError,
  RequestError,
  StoreError,
  OverloadedError,
  AddressError,
  UsageError,
  understood,
};
