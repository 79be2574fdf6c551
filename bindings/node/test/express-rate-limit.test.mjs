// A store for express-rate-limit: its users change one line.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import express from "express";
import { rateLimit } from "express-rate-limit";
import { TollkeeperStore } from "tollkeeper/express-rate-limit";
import { Redis, namespace, serving, statuses } from "./world.mjs";

let redis;
before(async () => (redis = await Redis.start()));
after(() => redis.kill());

function application(options, use, status = 200) {
  const app = express();
  app.use(rateLimit({ windowMs: 24 * 3600 * 1000, standardHeaders: "draft-6", legacyHeaders: false, ...options }));
  app.get("/", (request, response) => response.status(status).json(request.rateLimit));
  return serving(() => app.listen(0, "127.0.0.1"), use);
}

for (const kind of ["memory", "redis"]) {
  const store = (options) => new TollkeeperStore({ store: kind === "memory" ? "memory:" : redis.url, namespace: namespace(), timeout: 5, ...options });

  test(`it counts as express-rate-limit expects, ${kind}`, () =>
    application({ limit: 3, store: store() }, async (url) => {
      const first = await fetch(url);
      const { limit, used, remaining, resetTime } = await first.json();
      assert.deepEqual([limit, used, remaining], [3, 1, 2]);
      assert(new Date(resetTime) > new Date());
      assert.equal(first.headers.get("ratelimit-remaining"), "2");
      assert.deepEqual(await statuses(url, 4), [200, 200, 429, 429]);
      assert((await fetch(url)).headers.get("retry-after"));
    }));

  test(`limits that are a function, and keys that are reset, ${kind}`, async () => {
    const limiter = rateLimit({ windowMs: 24 * 3600 * 1000, limit: async () => 2, keyGenerator: () => "key", store: store() });
    const app = express();
    app.use(limiter);
    app.get("/", (request, response) => response.send("home"));
    await serving(() => app.listen(0, "127.0.0.1"), async (url) => {
      assert.deepEqual(await statuses(url, 3), [200, 200, 429]);
      assert.equal((await limiter.getKey("key")).totalHits, 3);
      limiter.resetKey("key");
      for (let attempt = 0; attempt < 100; attempt++) {
        if ((await limiter.getKey("key")).totalHits === 0) break;
      }
      assert.deepEqual(await statuses(url, 1), [200]);
    });
  });

  test(`requests that should not count are taken back, ${kind}`, async () => {
    await application({ limit: 3, skipFailedRequests: true, store: store() }, async (url) => assert.deepEqual(await statuses(url, 10), Array(10).fill(404)), 404);
    await application({ limit: 3, skipFailedRequests: true, store: store() }, async (url) => assert.deepEqual(await statuses(url, 4), [200, 200, 200, 429]));
  });
}

test("processes share one count on Redis, and a limit of 0 denies all", async () => {
  const space = namespace();
  const shared = () => new TollkeeperStore({ store: redis.url, namespace: space, timeout: 5 });
  await application({ limit: 5, store: shared() }, (one) =>
    application({ limit: 5, store: shared() }, async (other) => {
      assert.deepEqual([...(await statuses(one, 3)), ...(await statuses(other, 3))], [200, 200, 200, 200, 200, 429]);
    }),
  );
  await application({ limit: 0, store: new TollkeeperStore(), validate: false }, async (url) => assert.deepEqual(await statuses(url, 1), [429]));
});

test("mistakes are named", () => {
  assert.throws(() => new TollkeeperStore({ url: "redis://" }), /there is no option `url`; use one of store/);
  assert.throws(() => new TollkeeperStore({ store: "nowhere:" }), /is not a store/);
});
