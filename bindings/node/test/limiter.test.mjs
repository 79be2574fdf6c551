// Rules in memory.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { CostError, Limiter, ManualClock, Quota, RuleError, UsageError } from "tollkeeper";
import { folder, output } from "./world.mjs";

const RULE = { name: "per-user", scope: "user", key: "{user_id}", limit: "2/min" };

test("a verdict tells what was decided and why", async () => {
  const clock = new ManualClock();
  const limiter = Limiter.fromRules([RULE, { name: "all", key: "global", limit: "100/min" }], { clock });
  const verdict = await limiter.check({ user_id: "42" });
  assert.deepEqual([verdict.allowed, verdict.limiting, verdict.retryAfter, verdict.source], [true, null, 0, "store"]);
  assert.deepEqual(verdict.rules.map(({ rule, key, remaining }) => [rule, key, remaining]), [["per-user", "42", 1], ["all", "global", 99]]);
  await limiter.check({ user_id: 42 });
  const denied = await limiter.check({ user_id: "42" });
  assert.deepEqual([denied.allowed, denied.limiting, denied.retryAfter, denied.unavailable], [false, "per-user", 30, false]);
  assert.equal(denied.headers["retry-after"], "30");
  assert.match(denied.headers.ratelimit, /"per-user";r=0;t=30/);
  // All or nothing: the other rule was not charged.
  assert.equal(denied.rules[1].remaining, 98);
  assert.equal(JSON.parse(JSON.stringify(denied)).limiting, "per-user");
});

test("soft limits are reported", () => {
  const soft = { name: "soft", key: "{user_id}", limit: "2/h", mode: "annotate" };
  const limiter = Limiter.fromRules([soft, { name: "all", key: "global", limit: "100/min" }], { clock: new ManualClock() });
  assert.deepEqual(limiter.tryCheck({ user_id: "42" }).annotations, []);
  const verdict = limiter.tryCheck({ user_id: "42" }, { cost: 4 });
  assert.deepEqual([verdict.allowed, verdict.limiting, verdict.headers["retry-after"]], [true, null, undefined]);
  assert.deepEqual(verdict.annotations, [{ rule: "soft", limit: 2, overBy: 3, retryAfter: null }]);
  const [over] = limiter.tryCheck({ user_id: "42" }, { cost: 2 }).annotations;
  assert.deepEqual([over.overBy, over.retryAfter], [1, 1800]);
});

test("costs, peeks and attributes that are absent", async () => {
  const limiter = Limiter.fromRules([RULE, { name: "upload", key: "{user_id}", limit: "10/min", cost: "bytes" }]);
  assert.equal(limiter.tryCheck({ user_id: "a", bytes: 4 }).rules[1].remaining, 6);
  assert.equal(limiter.tryCheck({ user_id: "a", bytes: 4 }, { cost: 0 }).allowed, true);
  assert.deepEqual(limiter.tryCheck({ user_id: null, other: true }).rules, []);
  await assert.rejects(limiter.check({ user_id: "a", bytes: "many" }), (error) => error instanceof CostError && error.code === "ERR_TOLLKEEPER_COST");
  await assert.rejects(limiter.check({ user_id: "a" }, { cost: -1 }), /cost: -1 is not a whole number/);
  await assert.rejects(limiter.check("a"), /attributes must be an object/);
  await assert.rejects(limiter.check({ user_id: {} }), /user_id: an attribute must be a string/);
});

test("rules from a file, changed while it runs", async () => {
  const path = join(folder(), "rules.yaml");
  writeFileSync(path, "rules:\n  - { name: a, key: '{user}', limit: 1/h }\nlisten: { http: 127.0.0.1:8080 }\n");
  const limiter = await Limiter.fromFile(path);
  assert.equal((await limiter.check({ user: "x" })).allowed, true);
  assert.equal((await limiter.check({ user: "x" })).allowed, false);
  writeFileSync(path, "rules:\n  - { name: a, key: '{user}', limit: 3/h }\n");
  limiter.replaceRulesFromFile(pathToFileURL(path));
  assert.deepEqual((await limiter.check({ user: "x" })).rules[0].limit, 3);
  limiter.replaceRules(["5/min by user", new Quota("7/min algorithm fixed_window")]);
  assert.deepEqual(limiter.rules.map(({ name, key }) => [name, key]), [["limit", "{user}"], ["limit-2", "{ip}"]]);
  assert.throws(() => limiter.replaceRules([{ name: "a", key: "{user}", limit: "x/h" }]), RuleError);
  assert.equal(limiter.rules.length, 2, "what is wrong changes nothing");
  writeFileSync(path, "rules:\n  - { name: a, key: '{user}', limits: 3/h }\n");
  await assert.rejects(Limiter.fromFile(path), (error) => error instanceof RuleError && error.message.includes(`${path}:2:31: rules[0].limits: is not known`));
  await assert.rejects(Limiter.fromFile(join(folder(), "none.yaml")), /none.yaml: there is no such file/);
});

test("slots are held until they are released", async () => {
  const limiter = Limiter.fromRules([{ name: "exports", key: "{user}", limit: 1, algorithm: "concurrency" }]);
  const permit = await limiter.acquire({ user: "a" });
  assert.equal(permit.allowed, true);
  const denied = await limiter.acquire({ user: "a" });
  assert.deepEqual([denied.allowed, denied.verdict.limiting], [false, "exports"]);
  permit.release();
  permit.release();
  const again = await limiter.acquire({ user: "a" });
  assert.equal(again.allowed, true);
  await again[Symbol.asyncDispose ?? Symbol.for("none")]?.();
  if (Symbol.asyncDispose) assert.equal((await limiter.acquire({ user: "a" })).allowed, true);
});

test("an estimate is settled once", async () => {
  const limiter = Limiter.fromRules([{ name: "tokens", key: "{user}", limit: "10,000/day" }]);
  const reservation = await limiter.reserve({ user: "a" }, { cost: 4000 });
  assert.equal(reservation.allowed, true);
  const [settled] = await reservation.settle(1500);
  assert.deepEqual([settled.rule, settled.cost, settled.reserved, settled.refunded, settled.remaining], ["tokens", 1500, 4000, 2500, 8500]);
  await assert.rejects(reservation.settle(1), (error) => error instanceof UsageError && /already been settled or released/.test(error.message));
  assert.equal((await limiter.reserve({ user: "a" }, { cost: 9000 })).allowed, false);
  await assert.rejects(limiter.reserve({ user: "a" }, { hold: -1 }), /hold: -1 is not a duration/);
});

test("buckets can be looked at and forgotten", async () => {
  const limiter = Limiter.fromRules([RULE]);
  await limiter.check({ user_id: "a" });
  const [{ key, remaining, limit }] = await limiter.inspect("per-user", "a");
  assert.deepEqual({ key, remaining, limit }, { key: "a", remaining: 1, limit: 2 });
  assert.equal(await limiter.reset("per-user", "a"), true);
  assert.equal(await limiter.reset("per-user", "a"), false);
  await assert.rejects(limiter.inspect("nobody", "a"), /there is no rule `nobody`/);
});

test("mistakes are named", () => {
  assert.throws(() => Limiter.fromRules("10/s"), /rules must be an array/);
  assert.throws(() => Limiter.fromRules([{ ...RULE, brust: 1 }]), /rules\[0\]\.brust: is not known; did you mean `burst`/);
  assert.throws(() => Limiter.fromRules([RULE], { trustedProxies: ["localhost"] }), /trusted_proxies\[0\]: "localhost" is not an address/);
  assert.throws(() => Limiter.fromRules([RULE], { denyStatus: 200 }), /deny_status: 200/);
  assert.throws(() => Limiter.fromRules([RULE], { store: "sqlite:x" }), /is not a store/);
  assert.throws(() => Limiter.fromRules([RULE], { timeout: -1 }), /timeout: -1 is not a duration/);
  assert.throws(() => Limiter.fromRules([RULE], { stroe: "memory:" }), /there is no option `stroe`/);
  assert.throws(() => new Limiter(), UsageError);
  assert.throws(() => Limiter.fromRules([RULE], { store: "redis://127.0.0.1:1" }).tryCheck({}), /tryCheck is for limits in memory/);
});

test("options of calls are checked", async () => {
  // A cost as the second argument, as `keyed` has it, was ignored: every request cost 1.
  const limiter = Limiter.fromRules([RULE]);
  assert.throws(() => limiter.tryCheck({ user_id: "a" }, 5), /limiter.check: options are an object such as \{ cost: ... \}, not 5/);
  await assert.rejects(limiter.check({ user_id: "a" }, { costs: 5 }), /there is no option `costs`; use one of cost, rules/);
  await assert.rejects(limiter.acquire({ user_id: "a" }, { rule: "x" }), /limiter.acquire: there is no option `rule`/);
  await assert.rejects(limiter.reserve({ user_id: "a" }, { until: 1 }), /limiter.reserve: there is no option `until`; use one of cost, rules, hold/);
  await assert.rejects(limiter.checkMany([{ user_id: "a" }], { cost: 1 }), /limiter.checkMany: there is no option `cost`/);
  const reservation = await limiter.reserve({ user_id: "a" });
  await assert.rejects(reservation.settle(-1), /cost: -1 is not a whole number/);
  assert.equal((await reservation.settle(0))[0].refunded, 1, "the mistake has not used it up");
  assert.throws(() => Limiter.fromRules([RULE], { store: new Map() }), /store: must be a URL such as "redis:.*", not an object/);
  await assert.rejects(Limiter.fromFile("tollkeeper.yaml", { store: {} }), /store: must be a URL/);
  await assert.rejects(Limiter.fromFile(), /the path of a file must be a string or a URL, not undefined/);
  assert.throws(() => Limiter.fromRules([RULE], { headers: true }), /headers: must be a text, not true/);
  await assert.rejects(limiter.check({ user_id: "a" }, { rules: "per-user" }), /rules: must be an array of names, not per-user/);
  await assert.rejects(limiter.reserve({ user_id: "a" }, { hold: "1h" }), /hold: must be a number of seconds, not 1h/);
  await assert.rejects(limiter.inspect("per-user"), /key: must be a string, not undefined/);
  assert.throws(() => Limiter.fromRules([{ name: "a", limit: "1/s" }]), /rules\[0\].key: is missing; .*"key": "\{ip\}"/);
});

const STYLES = {
  "draft-11": ["ratelimit", "ratelimit-policy"],
  "draft-03": ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"],
  "draft-06": ["ratelimit-limit", "ratelimit-policy", "ratelimit-remaining", "ratelimit-reset"],
  "draft-07": ["ratelimit", "ratelimit-policy"],
  "x-ratelimit-epoch": ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"],
  "x-ratelimit-delta": ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"],
  none: [],
};

for (const [style, names] of Object.entries(STYLES)) {
  test(`headers in the style ${style}`, () => {
    const limiter = Limiter.fromRules(["1/min burst 1 by user"], { headers: style, clock: new ManualClock(1_700_000_000) });
    assert.deepEqual(Object.keys(limiter.tryCheck({ user: "a" }).headers).sort(), names);
    const { headers } = limiter.tryCheck({ user: "a" });
    assert.deepEqual(Object.keys(headers).sort(), [...names, "retry-after"].sort());
    assert.equal(headers["retry-after"], "60");
    if (style === "x-ratelimit-epoch") assert.equal(headers["x-ratelimit-reset"], "1700000060");
  });
}

test("making limiters starts no thread and keeps no process alive", async () => {
  const code = `
    const { Limiter, keyed } = require("tollkeeper");
    const { readdirSync, readFileSync } = require("fs");
    const threads = () => readdirSync("/proc/self/task").map((id) => readFileSync("/proc/self/task/" + id + "/comm", "utf8").trim());
    keyed("1/s").check("a");
    Limiter.fromRules(["1/s by user"]).tryCheck({ user: "a" });
    const limiter = Limiter.fromRules(["1/s by user"], { store: "redis://127.0.0.1:1" });
    console.log(threads().includes("tollkeeper-io"));
    limiter.check({ user: "a" }).then(() => console.log(threads().includes("tollkeeper-io")));
  `;
  const { stdout, stderr } = await output(process.execPath, ["-e", code], { cwd: import.meta.dirname ?? new URL(".", import.meta.url).pathname });
  assert.equal(stdout, "false\ntrue\n");
  // Nobody listens there.
  assert.match(stderr, /^\(node:\d+\) \[TOLLKEEPER_STORE\] TollkeeperWarning: cannot reach the store at redis:\/\/127.0.0.1:1 yet/);
});
