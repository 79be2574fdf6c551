// Exceptions for single keys: block, allow, grant, lift and list, in memory and in Redis.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ConfigError, Limiter, ManualClock, RuleError, StoreError, UsageError } from "tollkeeper";
import { Redis, namespace } from "./world.mjs";

const RULES = [
  { name: "per-user", key: "{user_id}", limit: "2/min" },
  { name: "all", key: "global", limit: "100/h" },
];

let redis;
before(async () => (redis = await Redis.start()));
after(() => redis.kill());

const onRedis = (space = namespace()) => Limiter.fromRules(RULES, { store: redis.url, namespace: space, timeout: 5 });

for (const [place, make] of [["memory", () => Limiter.fromRules(RULES)], ["Redis", onRedis]]) {
  test(`in ${place} a blocked key is denied and nothing is charged`, async () => {
    const limiter = make();
    const made = await limiter.block("per-user", "42", { duration: "1h", reason: "scraper", madeBy: "ada" });
    const { since, until, ...rest } = made;
    assert.deepEqual(rest, { rule: "per-user", key: "42", by: null, kind: "block", limit: null, burst: null, reason: "scraper", madeBy: "ada" });
    assert(Math.abs(until - since - 3_600_000) < 1000 && Math.abs(since - Date.now()) < 60_000, `${since} to ${until}`);
    const verdict = await limiter.check({ user_id: "42" });
    assert.deepEqual([verdict.allowed, verdict.limiting, verdict.source], [false, "per-user", "exception"]);
    assert(verdict.retryAfter > 3500 && verdict.retryAfter <= 3600, `retry after ${verdict.retryAfter}`);
    assert.deepEqual(verdict.rules.map(({ exception }) => exception), ["block", null]);
    const other = await limiter.check({ user_id: "7" });
    assert.deepEqual([other.allowed, other.rules[1].remaining], [true, 99], "a blocked request charges no other rule");
  });

  test(`in ${place} an allowed key is not charged by that rule, and a grant keeps what was used`, async () => {
    const limiter = make();
    await limiter.allow("per-user", "41");
    for (let index = 0; index < 5; index++) assert.equal((await limiter.check({ user_id: "41" })).allowed, true);
    for (const allowed of [true, true, false]) assert.equal((await limiter.check({ user_id: "42" })).allowed, allowed);
    const made = await limiter.grant("per-user", "42", "10/min", { burst: 20, duration: 7 * 86400 });
    assert.deepEqual([made.kind, made.limit, made.burst], ["grant", "10/min", 20]);
    const [row] = (await limiter.check({ user_id: "42" })).rules;
    assert.deepEqual([row.remaining, row.limit, row.exception, row.source], [17, 20, "grant", "exception"]);
    assert.equal((await limiter.lift("per-user", "42")).kind, "grant");
    assert.equal((await limiter.check({ user_id: "42" })).allowed, false);
  });

  test(`in ${place} exceptions are listed, replaced and lifted`, async () => {
    const limiter = make();
    assert.deepEqual(await limiter.exceptions(), []);
    await limiter.block("*", "42");
    await limiter.grant("per-user", "7", "5/min");
    await limiter.block("per-user", "8");
    await limiter.allow("per-user", "8");
    const shown = (await limiter.exceptions()).map(({ rule, key, kind }) => [rule, key, kind]);
    assert.deepEqual(shown, [["*", "42", "block"], ["per-user", "7", "grant"], ["per-user", "8", "allow"]]);
    const lifted = await limiter.lift("*", "42");
    assert.deepEqual([lifted.kind, lifted.until], ["block", null]);
    assert.equal(await limiter.lift("*", "42"), null, "there was none any more");
    assert.equal((await limiter.check({ user_id: "42" })).allowed, true);
    assert.equal((await limiter.exceptions()).length, 2);
  });

  test(`in ${place} a key that looks like an address is not that address`, async () => {
    const limiter = make();
    limiter.replaceRules([{ name: "client", key: "{api_key|ip}", limit: "1/h" }]);
    assert.equal((await limiter.allow("client", "198.51.100.7")).by, "ip");
    const allowed = async (attributes) => (await limiter.check(attributes)).allowed;
    for (let index = 0; index < 3; index++) assert.equal(await allowed({ ip: "198.51.100.7" }), true);
    assert.deepEqual([await allowed({ api_key: "198.51.100.7" }), await allowed({ api_key: "198.51.100.7" })], [true, false]);
    assert.equal((await limiter.allow("client", "198.51.100.7", { by: "api_key" })).by, "api_key");
    await assert.rejects(limiter.block("client", "42", { by: "tenant" }), /by: .*no alternative tenant; use api_key or ip/);
    assert.equal((await limiter.lift("client", "198.51.100.7", { by: "api_key" })).kind, "allow");
    assert.equal(await allowed({ api_key: "198.51.100.7" }), false);
  });
}

test("they end by the store's clock", async () => {
  const clock = new ManualClock(1_700_000_000);
  const limiter = Limiter.fromRules(RULES, { clock });
  await limiter.block("per-user", "42", { duration: 60 });
  await limiter.block("per-user", "43", { until: new Date(1_700_000_060_000) });
  for (const user_id of ["42", "43"]) assert.equal(limiter.tryCheck({ user_id }).retryAfter, 60);
  clock.advance(60);
  for (const user_id of ["42", "43"]) assert.equal(limiter.tryCheck({ user_id }).allowed, true);
  assert.deepEqual(await limiter.exceptions(), []);
});

test("mistakes are named", async () => {
  const limiter = Limiter.fromRules(RULES);
  const refused = (call, Class, words) => assert.rejects(call, (error) => error instanceof Class && words.test(error.message));
  await refused(limiter.block("per-usr", "42"), UsageError, /rule: there is none named "per-usr"/);
  await refused(limiter.block("per-user", ""), UsageError, /key: is empty/);
  await refused(limiter.block("per-user", "42", { until: new Date("2020-01-01") }), UsageError, /until: is not in the future/);
  await refused(limiter.block("per-user", "42", { until: new Date("never") }), UsageError, /until: is not a time/);
  await refused(limiter.block("per-user", "42", { until: 1_700_000_000 }), UsageError, /until: must be a Date, not 1700000000/);
  const both = { duration: 1, until: new Date(Date.now() + 5000) };
  await refused(limiter.block("per-user", "42", both), UsageError, /until: cannot be combined with duration/);
  for (const duration of [-1, NaN, 1e300, {}]) {
    await refused(limiter.block("per-user", "42", { duration }), UsageError, /duration: .* is not a duration/);
  }
  await refused(limiter.block("per-user", "42", { duration: 0 }), UsageError, /duration: is zero/);
  await refused(limiter.block("per-user", "42", { duration: "a while" }), UsageError, /duration: /);
  await refused(limiter.grant("per-user", "42", "1/fortnight"), RuleError, /limit: .*fortnight/);
  await refused(limiter.block("per-user", "42", { resaon: "typo" }), ConfigError, /limiter.block: there is no option `resaon`/);
  await refused(limiter.lift("per-user", "42", { reason: "x" }), ConfigError, /limiter.lift: there is no option `reason`/);
  assert.deepEqual(await limiter.exceptions(), []);
});

test("other processes follow", async () => {
  const space = namespace();
  const [one, other] = [onRedis(space), onRedis(space)];
  assert.equal((await other.check({ user_id: "42" })).allowed, true);
  await one.block("per-user", "42");
  for (let attempt = 0; (await other.check({ user_id: "42" }, { cost: 0 })).allowed; attempt++) {
    assert(attempt < 600, "the other limiter does not learn of the exception");
    await sleep(50);
  }
  assert.deepEqual((await other.exceptions()).map(({ kind }) => kind), ["block"]);
});

test("an exception needs the store", async () => {
  const limiter = Limiter.fromRules(RULES, { store: "redis://127.0.0.1:1" });
  await assert.rejects(limiter.block("per-user", "42"), StoreError);
});
