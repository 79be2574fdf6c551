// Several processes of one application, and several languages, on one Redis: the total is exact.
import assert from "node:assert/strict";
import { once } from "node:events";
import { fork } from "node:child_process";
import { statSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Limiter } from "tollkeeper";
import { ROOT, Redis, folder, freePort, namespace, output, statuses } from "./world.mjs";

let redis;
before(async () => (redis = await Redis.start()));
after(() => redis.kill());

test("workers of a cluster count together", async () => {
  const [limit, port, served] = [100, await freePort(), join(folder(), "served")];
  const env = { ...process.env, STORE: redis.url, NAMESPACE: namespace(), LIMIT: limit, PORT: port, SERVED: served };
  const primary = fork(new URL("clustered.mjs", import.meta.url), { env });
  const exited = once(primary, "exit");
  const [{ workers }] = await once(primary, "message");
  assert.equal(workers, 3);
  const callers = Array.from({ length: 8 }, () => statuses(`http://127.0.0.1:${port}/`, 40, { headers: { connection: "close" } }));
  const found = (await Promise.all(callers)).flat();
  primary.send("stop");
  await exited;
  assert.equal(found.filter((status) => status === 200).length, limit);
  assert.equal(found.filter((status) => status === 429).length, 8 * 40 - limit);
  // Each request that was served left a byte, whichever worker served it.
  assert.equal(statSync(served).size, limit);
});

test("a Redis that is killed under load fails no request", async (t) => {
  const own = await Redis.start();
  t.after(() => own.kill());
  const port = await freePort();
  const env = { ...process.env, STORE: own.url, NAMESPACE: namespace(), LIMIT: 1_000_000, PORT: port, SERVED: join(folder(), "served") };
  const primary = fork(new URL("clustered.mjs", import.meta.url), { env });
  const exited = once(primary, "exit");
  await once(primary, "message");
  const found = new Map();
  let [total, isOver] = [0, false];
  const ask = async () => {
    while (!isOver) {
      const status = await statuses(`http://127.0.0.1:${port}/`, 1, { headers: { connection: "close" } }).catch((error) => [String(error.cause ?? error)]);
      found.set(status[0], (found.get(status[0]) ?? 0) + 1);
      total++;
    }
  };
  const callers = Array.from({ length: 6 }, ask);
  const more = async (count) => {
    for (const wanted = total + count; total < wanted; ) await sleep(10);
  };
  await more(200);
  await own.kill();
  await more(400);
  await own.run();
  // It was started empty: the workers are back when they have counted something there.
  const size = async () => Number((await output("redis-cli", ["-p", String(own.port), "dbsize"])).stdout);
  for (let attempt = 0; (await size()) === 0; attempt++) {
    assert(attempt < 1200, "they do not go back to the store");
    await sleep(50);
  }
  await more(100);
  isOver = true;
  await Promise.all(callers);
  primary.send("stop");
  await exited;
  assert.deepEqual([...found.keys()], [200], JSON.stringify([...found]));
});

test("Rust, Python and Node share one limit, at the same time", async () => {
  const [space, limit, times] = [namespace(), 301, 200];
  // In seconds since the epoch: when all of them are up, on most machines. The total is exact on the others too.
  const start = Date.now() / 1000 + 1.5;
  const python = `
import asyncio, sys, time
from tollkeeper import Limiter
limiter = Limiter.from_rules([{"name": "shared", "key": "{user}", "limit": "${limit}/day"}], store=sys.argv[1], namespace=sys.argv[2], timeout=10)
async def main():
    passed = 0
    time.sleep(max(0, float(sys.argv[3]) - time.time()))
    for _ in range(${times}):
        verdict = await limiter.check({"user": "a"})
        assert verdict.source != "local", "Redis did not answer"
        passed += verdict.allowed
    print(passed)
asyncio.run(main())
`;
  const inNode = async () => {
    const rule = { name: "shared", key: "{user}", limit: `${limit}/day` };
    const limiter = Limiter.fromRules([rule], { store: redis.url, namespace: space, timeout: 10 });
    let passed = 0;
    await sleep(start * 1000 - Date.now());
    for (let index = 0; index < times; index++) {
      const verdict = await limiter.check({ user: "a" });
      assert.notEqual(verdict.source, "local", "Redis did not answer");
      passed += verdict.allowed;
    }
    return passed;
  };
  const inPython = output("python3", ["-c", python, redis.url, space, String(start)], {
    env: { ...process.env, PYTHONPATH: join(ROOT, "bindings/python/python") },
  });
  const spend = join(ROOT, "target/bindings/debug/examples/spend");
  const inRust = output(spend, [redis.url, space, `${limit}/day`, String(times), String(start)]);
  const passed = [await inNode(), Number((await inPython).stdout), Number((await inRust).stdout)];
  assert.equal(passed.reduce((sum, count) => sum + count), limit, `Node, Python, Rust: ${passed}`);
});
