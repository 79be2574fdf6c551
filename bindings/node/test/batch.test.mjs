// Several requests in one call, each decided by itself.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { CostError, Limiter, OverloadedError, UsageError } from "tollkeeper";
import { Redis, namespace } from "./world.mjs";

const RULES = [
  { name: "per-user", key: "{user_id}", limit: "2/min" },
  { name: "all", key: "global", limit: "100/h" },
];

let redis;
before(async () => (redis = await Redis.start()));
after(() => redis.kill());

const onRedis = (rules = RULES, server = redis) => Limiter.fromRules(rules, { store: server.url, namespace: namespace(), timeout: 5 });

for (const [place, make] of [["memory", () => Limiter.fromRules(RULES)], ["Redis", () => onRedis()]]) {
  test(`in ${place} each is decided by itself`, async () => {
    const limiter = make();
    const verdicts = await limiter.checkMany(["1", "2", "1", "1"].map((user_id) => ({ user_id })));
    assert.deepEqual(verdicts.map(({ rules }) => rules[0].key), ["1", "2", "1", "1"]);
    const denied = verdicts.filter(({ allowed }) => !allowed);
    assert.deepEqual(denied.map(({ limiting, headers }) => [limiting, headers["retry-after"]]), [["per-user", "30"]]);
    assert.deepEqual(await limiter.checkMany([]), []);
    const [last] = await limiter.checkMany(new Set([{ user_id: "3" }]));
    assert.equal(last.rules[1].remaining, 96);
  });

  test(`in ${place} costs and rules`, async () => {
    const limiter = make();
    const requests = [[{ user_id: "1" }, { cost: 30 }], [{ user_id: "2" }, { cost: 101 }], [{ user_id: "3" }, { rules: ["per-user"] }]];
    const verdicts = await limiter.checkMany(requests, { rules: ["all"] });
    assert.deepEqual(verdicts.map(({ allowed }) => allowed), [true, false, true]);
    assert.deepEqual(verdicts.map(({ rules }) => rules.map(({ rule }) => rule)), [["all"], ["all"], ["per-user"]]);
    assert.equal((await limiter.check({}, { cost: 0 })).rules[0].remaining, 70);
    const one = await limiter.check({ user_id: "1" }, { rules: ["per-user"] });
    assert.deepEqual(one.rules.map(({ rule }) => rule), ["per-user"]);
    await assert.rejects(limiter.check({ user_id: "1" }, { rules: ["per-usr"] }), /there is no rule `per-usr`/);
  });

  test(`in ${place} one invalid request refuses all and nothing is charged`, async () => {
    const limiter = make();
    limiter.replaceRules([{ name: "parts", key: "global", limit: "10/h", cost: "parts" }]);
    const refused = (call, Class, words) => assert.rejects(call, (error) => error instanceof Class && words.test(error.message));
    await refused(limiter.checkMany([{ parts: 3 }, { parts: "many" }]), CostError, /requests\[1\]: .*parts/);
    await refused(limiter.checkMany([{ parts: 3 }], { rules: ["part"] }), UsageError, /requests\[0\]: there is no rule `part`/);
    await refused(limiter.checkMany({ parts: 3 }), TypeError, /requests must be an array/);
    await refused(limiter.checkMany([{ parts: 3 }, "4"]), TypeError, /attributes must be an object/);
    assert.equal((await limiter.check({ parts: 1 }, { cost: 0 })).rules[0].remaining, 10);
  });
}

test("an exact total in one call, on a connection that is open", async () => {
  const limiter = onRedis(["100/h by user"]);
  await limiter.connect();
  const allowed = async () => (await limiter.checkMany(Array.from({ length: 500 }, () => ({ user: "a" })))).filter(({ allowed }) => allowed);
  assert.deepEqual([(await allowed()).length, (await allowed()).length], [100, 0]);
});

test("requests that were shed do not hide those that were decided", async (t) => {
  const own = await Redis.start();
  t.after(() => own.kill());
  const limiter = onRedis(["5/h by user"], own);
  await limiter.connect();
  own.child.kill("SIGSTOP");
  const goOn = setTimeout(() => own.child.kill("SIGCONT"), 2000);
  const failed = await limiter.checkMany(Array.from({ length: 20_000 }, (_, user) => ({ user }))).then(
    () => assert.fail("20,000 found room to wait"),
    (error) => error,
  );
  clearTimeout(goOn);
  own.child.kill("SIGCONT");
  assert(failed instanceof OverloadedError, `${failed}`);
  const decided = failed.verdicts.filter((verdict) => verdict !== null);
  assert(failed.verdicts.length === 20_000 && decided.length > 0 && decided.length < 20_000, `${decided.length} were decided`);
  assert(decided.every(({ allowed, rules }) => allowed && rules[0].remaining === 4));
});
