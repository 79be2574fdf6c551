// One quota, any key.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";
import { ConfigError, ManualClock, Quota, RuleError, TollkeeperError, keyed } from "tollkeeper";

test("a key passes until its quota is used, and again when time has passed", () => {
  const clock = new ManualClock();
  const logins = keyed("2/min", { clock });
  assert.deepEqual([1, 2, 3].map(() => logins.check("a").allowed), [true, true, false]);
  const denied = logins.check("a");
  assert.deepEqual({ ...denied }, { allowed: false, limit: 2, remaining: 0, retryAfter: 30, resetAfter: 60, delay: 0 });
  assert.equal(logins.check("b").allowed, true);
  clock.advance(30);
  assert.equal(logins.check("a").allowed, true);
});

test("a text, a number and bytes are three keys", () => {
  const limiter = keyed("1/h");
  for (const key of ["1", 1, new Uint8Array([49]), Buffer.from("2")]) assert.equal(limiter.check(key).allowed, true);
  for (const key of ["1", 1, new Uint8Array([49]), Buffer.from("2")]) assert.equal(limiter.check(key).allowed, false);
  assert.equal(limiter.size, 4);
  assert.equal(limiter.reset(1), true);
  assert.equal(limiter.reset(1), false);
  assert.equal(limiter.check(1).allowed, true);
  assert.deepEqual([limiter.check(0).allowed, limiter.check(-0).allowed], [true, false]);
  for (const key of [null, undefined, {}, 1n]) assert.throws(() => limiter.check(key), TypeError);
});

test("costs, peeks, and a request that can never pass", () => {
  const limiter = keyed("10/h");
  assert.equal(limiter.check("a", 4).remaining, 6);
  assert.equal(limiter.check("a", 0).remaining, 6);
  assert.equal(limiter.peek("a").allowed, true);
  assert.equal(limiter.check("a", 11).retryAfter, null);
  for (const cost of [-1, 1.5, NaN, "2", 2 ** 32]) assert.throws(() => limiter.check("a", cost), /cost: .* is not a whole number/);
});

test("slots are released once", () => {
  const limiter = keyed(Quota.concurrent(1));
  const slot = limiter.check("a");
  assert.equal(limiter.check("a").allowed, false);
  assert.equal(limiter.release("a", slot), true);
  assert.equal(limiter.release("a", slot), false);
  assert.equal(limiter.check("a").allowed, true);
});

test("quotas in words and in numbers", () => {
  assert.equal(String(new Quota("10/s burst 20")), "10/s burst 20 token_bucket");
  assert.equal(String(Quota.perSecond(10, { burst: 20 })), "10/s burst 20 token_bucket");
  const quota = Quota.perMinute(100, { algorithm: "sliding_window_log" });
  assert.deepEqual([quota.algorithm, quota.count, quota.period, quota.limit], ["sliding_window_log", 100, 60, 100]);
  assert.equal(keyed(quota).check("a").remaining, 99);
});

test("mistakes are reported by class, code and message", () => {
  assert.throws(() => keyed("ten/s"), (error) => {
    assert(error instanceof RuleError && error instanceof TollkeeperError && error instanceof Error);
    assert.equal(error.code, "ERR_TOLLKEEPER_RULE");
    assert.match(error.message, /"ten" is not a whole number/);
    return true;
  });
  assert.throws(() => keyed("1/s", { onFull: "shut" }), { name: "ConfigError", message: /onFull: "shut" is not supported/ });
  for (const maxKeys of [0, -1, 1.5, 1e15, "many"]) {
    assert.throws(() => keyed("1/s", { maxKeys }), (error) => error instanceof ConfigError && /maxKeys: .* is not a whole number from 1/.test(error.message));
  }
  assert.throws(() => keyed("1/s", { maxkeys: 1 }), /there is no option `maxkeys`; use one of maxKeys, onFull, clock/);
  assert.throws(() => keyed(5), { name: "TypeError", message: /a quota must be a string such as "10\/s burst 20" or a Quota, not 5/ });
  assert.throws(() => Quota.perSecond(10, { brust: 5 }), /Quota: there is no option `brust`; use one of burst, algorithm/);
});

test("a loop that never returns to the event loop keeps nothing", () => {
  // Objects with finalizers pile up until the event loop runs: decisions are plain values.
  const limiter = keyed("1/h");
  const before = process.memoryUsage().rss;
  for (let index = 0; index < 400_000; index++) limiter.check("a");
  assert(process.memoryUsage().rss - before < 256 * 1024 * 1024);
});

test("require gives what import gives", async () => {
  const required = createRequire(import.meta.url)("tollkeeper");
  const imported = await import("tollkeeper");
  assert.equal(required.keyed, imported.keyed);
  assert.deepEqual(Object.keys(required).sort(), Object.keys(imported).filter((name) => !["default", "module.exports"].includes(name)).sort());
});
