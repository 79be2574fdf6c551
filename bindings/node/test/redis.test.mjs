// What a real Redis adds: one total for all, failures, workers and the end of the process.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { Limiter, StoreError } from "tollkeeper";
import { Redis, namespace, output } from "./world.mjs";

const RULE = { name: "per-user", key: "{user}", limit: "100/h" };
const HERE = new URL(".", import.meta.url).pathname;

let redis;
before(async () => (redis = await Redis.start()));
after(() => redis.kill());

const limiterOn = (server, space, rule) => Limiter.fromRules([{ ...RULE, ...rule }], { store: server.url, namespace: space, timeout: 5 });

test("many callers get an exact total", async () => {
  const limiter = limiterOn(redis, namespace());
  const verdicts = await Promise.all(Array.from({ length: 500 }, () => limiter.check({ user: "a" })));
  assert.equal(verdicts.filter(({ allowed }) => allowed).length, 100);
});

test("many answers arrive with one wake-up", async () => {
  const addon = createRequire(import.meta.url)("../lib/addon.js");
  const { take } = addon;
  let [woken, answers] = [0, 0];
  addon.take = () => {
    const taken = take();
    if (taken.length > 0) woken++;
    answers += taken.length / 3;
    return taken;
  };
  try {
    const limiter = limiterOn(redis, namespace());
    await limiter.connect();
    [woken, answers] = [0, 0];
    await Promise.all(Array.from({ length: 500 }, (_, user) => limiter.check({ user })));
    assert.equal(answers, 500);
    assert(woken > 0 && woken < 100, `woken ${woken} times for 500 answers`);
  } finally {
    addon.take = take;
  }
});

test("two limiters share one total, and a denial is remembered", async () => {
  const space = namespace();
  const [one, other] = [limiterOn(redis, space), limiterOn(redis, space)];
  let passed = 0;
  for (let index = 0; index < 60; index++) {
    for (const limiter of [one, other]) passed += (await limiter.check({ user: "a" })).allowed;
  }
  assert.equal(passed, 100);
  assert.equal((await one.check({ user: "a" })).source, "deny_cache");
});

test("slots and estimates on a server", async () => {
  const limiter = Limiter.fromRules(
    [
      { name: "slots", key: "{user}", limit: 1, algorithm: "concurrency" },
      { name: "tokens", key: "{user}", limit: "100/h" },
    ],
    { store: redis.url, namespace: namespace(), timeout: 5 },
  );
  const permit = await limiter.acquire({ user: "a" });
  assert.equal((await limiter.acquire({ user: "a" })).allowed, false);
  permit.release();
  for (let attempt = 0; ; attempt++) {
    const again = await limiter.reserve({ user: "a" }, { cost: 1 });
    if (again.allowed) {
      const rows = await again.settle(0);
      assert.equal(rows.find(({ rule }) => rule === "tokens").refunded, 1);
      break;
    }
    assert(attempt < 200, "a released slot is still held");
    await sleep(20);
  }
});

for (const [policy, source, allowed] of [["open", "policy", true], ["closed", "policy", false], ["local", "local", true]]) {
  test(`a store that is killed and comes back: ${policy}`, async (t) => {
    const own = await Redis.start();
    t.after(() => own.kill());
    const rule = { ...RULE, on_store_failure: policy };
    const limiter = Limiter.fromRules([rule], { store: own.url, namespace: namespace(), timeout: 0.5 });
    assert.equal((await limiter.check({ user: "a" })).source, "store");
    await own.kill();
    const verdict = await limiter.check({ user: "a" });
    assert.deepEqual([verdict.source, verdict.allowed, verdict.unavailable], [source, allowed, !allowed]);
    await own.run();
    for (let attempt = 0; (await limiter.check({ user: "a" })).source !== "store"; attempt++) {
      assert(attempt < 300, "it does not go back to the store");
      await sleep(100);
    }
  });
}

test("without a server the failure policy answers", async () => {
  for (const [policy, allowed] of [["open", true], ["closed", false], ["local", true]]) {
    const limiter = Limiter.fromRules([{ ...RULE, on_store_failure: policy }], { store: "redis://127.0.0.1:1" });
    const verdict = await limiter.check({ user: "a" });
    assert.deepEqual([verdict.allowed, verdict.source], [allowed, policy === "local" ? "local" : "policy"]);
    await assert.rejects(limiter.connect(), (error) => error instanceof StoreError && /cannot connect/.test(error.message));
  }
});

test("rules change on a server too", async () => {
  const limiter = limiterOn(redis, namespace(), { limit: "1/h" });
  assert.equal((await limiter.check({ user: "a" })).allowed, true);
  assert.equal((await limiter.check({ user: "a" })).allowed, false);
  limiter.replaceRules([{ ...RULE, limit: "10/h" }]);
  assert.equal((await limiter.check({ user: "a" })).allowed, true);
});

const program = (url, space, body) => `
  const { Limiter } = require("tollkeeper");
  const rules = [{ name: "leased", key: "{user}", limit: "1000/h", lease: 100 }];
  const limiter = Limiter.fromRules(rules, { store: ${JSON.stringify(url)}, namespace: ${JSON.stringify(space)}, timeout: 5 });
  (async () => { ${body} })();
`;

for (const [how, end] of [["by itself", ""], ["by process.exit", "process.exit(0);"], ["after close", "await limiter.close();"]]) {
  test(`leases are given back when the process ends ${how}`, async () => {
    const space = namespace();
    const body = `
      const sources = [];
      for (let index = 0; index < 50; index++) sources.push((await limiter.check({ user: "a" })).source);
      if (!sources.includes("lease")) throw new Error(String(sources));
      ${end}`;
    const { stderr } = await output(process.execPath, ["-e", program(redis.url, space, body)], { cwd: HERE });
    assert.equal(stderr, "");
    const limiter = Limiter.fromRules([{ name: "leased", key: "{user}", limit: "1000/h" }], { store: redis.url, namespace: space, timeout: 5 });
    const [{ remaining }] = await limiter.inspect("leased", "a");
    assert(remaining >= 950, `${remaining} are left of 1000 after 50`);
  });
}

test("the process waits for an answer, and ends quietly when nobody does", async (t) => {
  const own = await Redis.start();
  t.after(() => own.kill());
  const body = `
    await limiter.check({ user: "a" });
    process.kill(${own.child.pid}, "SIGSTOP");
    setTimeout(() => process.kill(${own.child.pid}, "SIGCONT"), 300).unref();
    console.log((await limiter.check({ user: "b" })).allowed);`;
  const { stdout, stderr } = await output(process.execPath, ["-e", program(own.url, namespace(), body)], { cwd: HERE });
  own.child.kill("SIGCONT");
  assert.deepEqual([stdout, stderr], ["true\n", ""]);
});

test("the process ends when it is told to, whatever is under way", async (t) => {
  const own = await Redis.start();
  t.after(() => own.kill());
  const body = `
    await limiter.check({ user: "a" });
    process.kill(${own.child.pid}, "SIGSTOP");
    limiter.check({ user: "b" });
    process.exit(0);`;
  const { stderr } = await output(process.execPath, ["-e", program(own.url, namespace(), body)], { cwd: HERE });
  assert.equal(stderr, "");
});

test("worker threads ask by themselves, and may end while they wait", async () => {
  const space = namespace();
  const code = `
    const { parentPort } = require("worker_threads");
    const { Limiter } = require("tollkeeper");
    const limiter = Limiter.fromRules([${JSON.stringify(RULE)}], { store: ${JSON.stringify(redis.url)}, namespace: ${JSON.stringify(space)}, timeout: 5 });
    (async () => {
      const verdicts = await Promise.all(Array.from({ length: 60 }, () => limiter.check({ user: "a" })));
      parentPort.postMessage(verdicts.filter(({ allowed }) => allowed).length);
      limiter.check({ user: "b" });
      process.exit(0);
    })();
  `;
  // eval'd code finds packages from the working directory.
  const cwd = process.cwd();
  process.chdir(HERE);
  const ask = () =>
    new Promise((resolve, reject) => {
      const worker = new Worker(code, { eval: true });
      let passed;
      worker.on("message", (count) => (passed = count));
      worker.on("error", reject);
      worker.on("exit", () => resolve(passed));
    });
  const passed = await Promise.all([ask(), ask(), ask()]);
  process.chdir(cwd);
  assert.equal(passed.reduce((sum, count) => sum + count), 100);
  assert.equal((await limiterOn(redis, namespace()).check({ user: "a" })).source, "store");
});

// What its requests held was dropped while the thread ended, when it had no runtime's context any more: the whole process was aborted.
test("worker threads may end while their requests hold slots and charges", async () => {
  const settings = { store: redis.url, namespace: namespace(), timeout: 5, by: "global" };
  const code = `
    const { parentPort } = require("worker_threads");
    const { rateLimit } = require("tollkeeper/express");
    const limit = rateLimit(["9/h", "9 algorithm concurrency hold 60s"], { ...${JSON.stringify(settings)}, countWhen: () => true });
    const request = { socket: {}, method: "GET", url: "/", rawHeaders: [] };
    limit(request, { setHeader() {}, once() {} }, (error) => {
      parentPort.postMessage(String(error));
      process.exit(0);
    });`;
  const body = `
    const { Worker } = require("worker_threads");
    const worker = new Worker(${JSON.stringify(code)}, { eval: true });
    worker.on("message", (error) => console.log(error));
    worker.on("exit", () => console.log("ended"));`;
  const { stdout } = await output(process.execPath, ["-e", body], { cwd: HERE });
  assert.equal(stdout, "undefined\nended\n");
});
