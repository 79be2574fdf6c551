// Exact rate limiting in your process.
//
// - `keyed("10/s burst 20").check(key)` limits each key by one quota, in memory, at once.
// - `Limiter` decides by rules, from code or from a file, in memory or in Redis.
// - `tollkeeper/express`, `/fastify`, `/koa`, `/hono`, `/nestjs` and `/express-rate-limit` are for the web.
"use strict";

const { ManualClock } = require("./clock.js");
const errors = require("./errors.js");
const { Permit, Reservation } = require("./hold.js");
const { Decision, Keyed, keyed } = require("./keyed.js");
const { Limiter } = require("./limiter.js");
const { Quota } = require("./quota.js");
const { Verdict } = require("./verdict.js");

// One by one, so that `import { keyed } from "tollkeeper"` finds them.
exports.AddressError = errors.AddressError;
exports.ConfigError = errors.ConfigError;
exports.CostError = errors.CostError;
exports.Decision = Decision;
exports.Keyed = Keyed;
exports.Limiter = Limiter;
exports.ManualClock = ManualClock;
exports.Permit = Permit;
exports.Quota = Quota;
exports.OverloadedError = errors.OverloadedError;
exports.RequestError = errors.RequestError;
exports.Reservation = Reservation;
exports.RuleError = errors.RuleError;
exports.StoreError = errors.StoreError;
exports.TollkeeperError = errors.TollkeeperError;
exports.UsageError = errors.UsageError;
exports.Verdict = Verdict;
exports.keyed = keyed;
