// Limits without a web framework: one key, rules, slots, and costs that are known later.
//
//   node plain.mjs
import { Limiter, keyed } from "tollkeeper";

const logins = keyed("5/min");
const decision = logins.check("198.51.100.7");
console.log(`allowed: ${decision.allowed}, left: ${decision.remaining}`);

// Slots: at most two exports of a user at the same time.
const exports = Limiter.fromRules([{ name: "exports", key: "{user_id}", limit: 2, algorithm: "concurrency" }]);
const permit = await exports.acquire({ user_id: "42" });
try {
  if (permit.allowed) console.log("exporting");
} finally {
  permit.release(); // or: await using permit = await exports.acquire(...)
}

// A cost that is known later: reserve an estimate, then settle what was used.
const limiter = Limiter.fromRules([{ name: "tokens", key: "{user_id}", limit: "10,000/day" }]);
const reservation = await limiter.reserve({ user_id: "42" }, { cost: 4000 });
if (reservation.allowed) {
  const used = 2311; // ... ask a model ...
  for (const settled of await reservation.settle(used)) console.log(`${settled.rule}: ${settled.remaining} left`);
}

const verdict = await limiter.check({ user_id: "42" }, { cost: 9000 });
console.log(`allowed: ${verdict.allowed}, by: ${verdict.limiting}, wait: ${verdict.retryAfter.toFixed(0)} s`);
