// Express 5 and 4.
import assert from "node:assert/strict";
import { AsyncLocalStorage } from "node:async_hooks";
import { once } from "node:events";
import { createServer, request } from "node:http";
import { connect as connectHttp2, createServer as createHttp2 } from "node:http2";
import { createRequire } from "node:module";
import { join } from "node:path";
import { test } from "node:test";
import express from "express";
import express4 from "express4";
import { rateLimit, verdictOf } from "tollkeeper/express";
import { conforms } from "./web.mjs";
import { Redis, folder, namespace, serving, statuses } from "./world.mjs";

for (const [name, make] of [["Express 5", express], ["Express 4", express4]]) {
  conforms(name, ({ all, login, slow }) => {
    const app = make();
    app.set("env", "test");
    if (all) app.use(rateLimit(...all));
    app.get("/", (request, response) => response.send("home"));
    app.post("/login", ...(login ? [rateLimit(...login)] : []), (request, response) => response.send("in"));
    app.get("/slow", (request, response) => slow.then(() => response.send("slow")));
    app.use((error, request, response, next) => response.status(500).send(error.message));
    return app.listen(0, "127.0.0.1");
  });

  test(`${name}: "trust proxy" says which proxies are trusted`, async () => {
    const app = make();
    app.set("trust proxy", "loopback");
    app.use(rateLimit("1/min"));
    app.get("/", (request, response) => response.send(String(verdictOf(request).rules[0].key)));
    await serving(() => app.listen(0, "127.0.0.1"), async (url) => {
      const from = (address) => ({ headers: { "x-forwarded-for": address } });
      assert.equal(await (await fetch(url, from("1.1.1.1"))).text(), "1.1.1.1");
      assert.deepEqual(await statuses(url, 2, from("2.2.2.2")), [200, 429]);
    });
  });

  // Express answers an error with the status that is set, which was that of the denial.
  test(`${name}: an onDenied that fails is an error of the server`, async () => {
    const app = make();
    app.set("env", "test");
    const fails = () => {
      throw new Error("a bug");
    };
    app.use("/now", rateLimit("1/h", { onDenied: fails }), (request, response) => response.send("home"));
    app.use("/later", rateLimit("1/h", { onDenied: async () => fails() }), (request, response) => response.send("home"));
    await serving(() => app.listen(0, "127.0.0.1"), async (url) => {
      for (const path of ["now", "later"]) assert.deepEqual(await statuses(`${url}/${path}`, 2), [200, 500]);
    });
  });

  // Each of them listened by itself, and Node warned of a leak.
  test(`${name}: many limits on one request count by its response`, async (t) => {
    const warnings = [];
    const listener = (warning) => warnings.push(warning.name);
    process.on("warning", listener);
    t.after(() => process.off("warning", listener));
    const app = make();
    const countWhen = (request, response) => response.statusCode >= 400;
    for (let limit = 0; limit < 12; limit++) app.use(rateLimit("1/h", { name: `limit-${limit}`, countWhen }));
    app.get("/", (request, response) => response.send("home"));
    await serving(() => app.listen(0, "127.0.0.1"), async (url) => {
      assert.deepEqual([...(await statuses(url, 3)), ...(await statuses(`${url}/nowhere`, 2))], [200, 200, 200, 404, 429]);
    });
    assert.deepEqual(warnings, []);
  });

  test(`${name}: limits by user`, async () => {
    const app = make();
    app.use((request, response, next) => {
      request.user = request.get("x-user") && { id: request.get("x-user") };
      next();
    });
    app.use(rateLimit("1/min", { by: "user|ip" }));
    app.get("/", (request, response) => response.send("home"));
    await serving(() => app.listen(0, "127.0.0.1"), async (url) => {
      assert.deepEqual(await statuses(url, 2, { headers: { "x-user": "a" } }), [200, 429]);
      assert.deepEqual(await statuses(url, 2), [200, 429]);
    });
  });
}

for (const place of ["memory", "Redis"]) {
  test(`in ${place} each of many requests at once has its own verdict, and keeps its async context`, async () => {
    const redis = place === "Redis" ? await Redis.start() : undefined;
    const settings = redis ? { store: redis.url, namespace: namespace(), timeout: 5 } : {};
    const [count, context] = [150, new AsyncLocalStorage()];
    let arrived = 0;
    const all = deferred();
    const app = express();
    app.use((request, response, next) => context.run(request.get("x-user"), next));
    app.use(rateLimit("10/min", { by: "header.x-user", name: "outer", ...settings }));
    app.get("/", rateLimit("20/min", { by: "header.x-user", name: "inner", ...settings }), async (request, response) => {
      if (++arrived === count) all.resolve();
      await all.promise;
      const { rules } = verdictOf(request);
      response.json({ context: context.getStore(), rules: rules.map(({ rule, key, remaining }) => [rule, key, remaining]) });
    });
    await serving(() => app.listen(0, "127.0.0.1"), async (url) => {
      const asked = await Promise.all(
        Array.from({ length: count }, async (_, index) => {
          const response = await fetch(url, { headers: { "x-user": `user-${index}` } });
          assert.match(response.headers.get("ratelimit"), /^"outer";r=9;t=\d+,"inner";r=19;t=\d+$/);
          return response.json();
        }),
      );
      for (const [index, answer] of asked.entries()) {
        const user = `user-${index}`;
        assert.deepEqual(answer, { context: user, rules: [["outer", user, 9], ["inner", user, 19]] });
      }
    });
    await redis?.kill();
  });
}

function deferred() {
  let resolve;
  const promise = new Promise((one) => (resolve = one));
  return { promise, resolve };
}

// The number of a layer on its page is a character of the answer, and 10 is that of a line's end.
test("requests wait for their turn wherever they are on a page", async () => {
  const app = express();
  app.use(rateLimit("1000/s burst 100 algorithm leaky_bucket"));
  app.get("/", (request, response) => response.send("home"));
  await serving(() => app.listen(0, "127.0.0.1"), async (url) => {
    const asked = await Promise.all(Array.from({ length: 70 }, () => fetch(url)));
    for (const { status, headers } of asked) assert.deepEqual([status, /";r=\d+/.test(headers.get("ratelimit"))], [200, true]);
  });
});

// Test runners load modules again for every file, in one process: a second copy got answers on a page that it did not know.
test("copies of the package on one thread keep their verdicts apart", async () => {
  const require = createRequire(import.meta.url);
  const isOurs = ([path]) => path.includes("/bindings/node/lib/");
  const copy = () => {
    const before = Object.entries(require.cache).filter(isOurs);
    for (const [path] of before) delete require.cache[path];
    const exported = require("tollkeeper/express");
    for (const [path, module] of before) require.cache[path] = module;
    return exported;
  };
  const app = express();
  for (const [name, { rateLimit, verdictOf }] of Object.entries({ one: copy(), other: copy() })) {
    app.use(`/${name}`, rateLimit("100/min", { by: "header.x-user", name }), (request, response) => {
      response.send(verdictOf(request).rules.map(({ rule, key }) => `${rule} ${key}`).join());
    });
  }
  await serving(() => app.listen(0, "127.0.0.1"), async (url) => {
    for (const name of ["one", "one", "other", "one", "other"]) {
      const response = await fetch(`${url}/${name}`, { headers: { "x-user": name } });
      assert.equal(await response.text(), `${name} ${name}`);
    }
  });
});

test("no limit headers where none are wanted", async () => {
  const app = express();
  app.use(rateLimit("1/min", { headers: "none" }));
  app.get("/", (request, response) => response.send("home"));
  await serving(() => app.listen(0, "127.0.0.1"), async (url) => {
    for (const status of [200, 429]) {
      const response = await fetch(url);
      const limits = [...response.headers.keys()].filter((name) => name.includes("ratelimit"));
      assert.deepEqual([response.status, limits, response.headers.has("retry-after")], [status, [], status === 429]);
    }
  });
});

test("trusting every proxy is warned of, once", async () => {
  const warnings = [];
  const listener = (warning) => warnings.push(warning.code);
  process.on("warning", listener);
  const app = express();
  app.set("trust proxy", true);
  app.use(rateLimit("100/min"));
  app.get("/", (request, response) => response.send("home"));
  await serving(() => app.listen(0, "127.0.0.1"), (url) => statuses(url, 3));
  process.off("warning", listener);
  assert.deepEqual(warnings, ["TOLLKEEPER_TRUST_PROXY"]);
});

test("Node's own server, and a Unix socket that has no address and says so", async () => {
  const limit = rateLimit("1/min");
  let failed;
  const server = createServer((request, response) => {
    limit(request, response, (error) => {
      failed = error;
      response.statusCode = error ? 500 : 200;
      response.end();
    });
  });
  await serving(() => server.listen(0, "127.0.0.1"), async (url) => assert.deepEqual(await statuses(url, 2), [200, 429]));
  const socketPath = join(folder(), "socket");
  server.listen(socketPath);
  const status = await new Promise((resolve) => request({ socketPath }, (response) => resolve(response.resume().statusCode)).end());
  server.close();
  assert.equal(status, 500, "not limited would be worse");
  assert.equal(failed.code, "ERR_TOLLKEEPER_ADDRESS");
});

// A response on HTTP/2 does not say that it is closed: the slot of a client that left before it was decided was never released.
test("on HTTP/2 a client that leaves early holds no slot", async () => {
  const arrived = deferred();
  const left = deferred();
  const by = (request) => (request.url === "/left" ? (arrived.resolve(), left.promise.then(() => "a")) : "a");
  const limit = rateLimit("1 algorithm concurrency hold 60s", { by });
  const passed = deferred();
  const server = createHttp2((request, response) => {
    limit(request, response, () => (request.url === "/left" ? passed.resolve() : response.end("home")));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const client = connectHttp2(`http://127.0.0.1:${server.address().port}`);
  const early = client.request({ ":path": "/left" });
  await arrived.promise;
  early.close();
  await once(early, "close");
  await new Promise((resolve) => setTimeout(resolve, 50));
  left.resolve();
  await passed.promise;
  const later = client.request({ ":path": "/" });
  const [headers] = await once(later, "response");
  assert.equal(headers[":status"], 200);
  client.destroy();
  server.close();
});

test("mistakes are reported when the middleware is made", () => {
  assert.throws(() => rateLimit(), /give either a limit/);
  assert.throws(() => rateLimit("ten/min"), /"ten" is not a whole number/);
  assert.throws(() => rateLimit("10/min", { windows: 1 }), /there is no option `windows`; use one of limit, by/);
  assert.throws(() => rateLimit({ windowMs: 1, limit: 100 }), /there is no option `windowMs`; write the window with the limit, such as rateLimit\("100\/15min"\)/);
  assert.throws(() => rateLimit("10/min", { keyGenerator: () => "a" }), /there is no option `keyGenerator`; write `by`/);
  assert.throws(() => rateLimit("10/min", { store: { increment() {} } }), /store: must be a URL such as "redis:.*", or "memory:", not an object/);
  // A limit by an attribute that no request has limited nobody.
  assert.throws(() => rateLimit("10/min", { by: "session" }), /by: no request has "session"; use ip, user, header.NAME/);
  assert.throws(() => rateLimit("10/min by x-api-key|ip"), /by: no request has "x-api-key"/);
  rateLimit("10/min", { by: "tenant|ip", identify: { tenant: "header.x-tenant" } });
  assert.throws(() => rateLimit("10/min", { name: 5 }), /name: must be a string, not 5/);
  assert.throws(() => rateLimit("10/min", { by: 5 }), /by: must be an attribute such as "header.x-api-key|ip", or a function, not 5/);
  assert.throws(() => rateLimit([]), /the limit is missing/);
  assert.throws(() => rateLimit({ limit: "10/min", limiter: rateLimit("1/s").limiter }), /give either a limit/);
  assert.throws(() => rateLimit({ limiter: rateLimit("1/s").limiter, by: "ip" }), /has its own settings/);
  assert.throws(() => rateLimit({ limiter: {} }), /limiter: create it with Limiter.fromRules/);
  assert.throws(() => rateLimit("10/min", { exempt: "/x" }), /exempt: must be a list of paths/);
  assert.throws(() => rateLimit("10/min", { exempt: ["healthz"] }), /exempt: "healthz": a path starts with a slash, as in "\/healthz"/);
  // A header without a name is one that no request has, and nobody was limited.
  for (const by of ["header.", "header.x key|ip", "ip|cookie.", "query."]) {
    assert.throws(() => rateLimit("10/min", { by }), /by: no request has "[^"]*"; use ip, user, header.NAME/);
  }
  rateLimit("10/min", { by: "header.X-Api-Key|cookie.sid|query.q" });
  assert.throws(() => rateLimit("10/min", []), /rateLimit: options are an object such as { limit: ... }, not \[\]/);
  for (const path of ["*.js", "/a*", "/a/*/b", "/a/*/*"]) {
    assert.throws(() => rateLimit("10/min", { exempt: [path] }), /exempt: ".*": only a trailing \/\* is supported, as in "\/static\/\*"/);
  }
  assert.throws(() => rateLimit("10/min", { attributes: () => ({}) }), /attributes: only for rules; pass `limiter` instead of a limit/);
  assert.throws(() => rateLimit({ limiter: rateLimit("1/s").limiter, attributes: { plan: "pro" } }), /attributes: must be a function/);
  assert.throws(() => rateLimit(() => "10/min"), /a limit cannot be a function: write a rule for each limit/);
  assert.throws(() => rateLimit("10/min", { allowList: [] }), /there is no option `allowList`; write `exempt`/);
  const shared = { store: "redis://127.0.0.1:1", namespace: "names" };
  rateLimit("10/min", { ...shared, name: "same" });
  rateLimit("10/min", { ...shared, name: "same" });
  assert.throws(() => rateLimit("20/min", { ...shared, name: "same" }), /two different limits are called "same"/);
});

/** Each request was answered with "there is no option `_events`". */
test("a middleware that was not called is told of", () =>
  serving(
    () => {
      const app = express();
      app.use(rateLimit);
      app.use((error, request, response, next) => response.status(500).send(error.message));
      return app.listen(0, "127.0.0.1");
    },
    async (url) => assert.match(await (await fetch(url)).text(), /rateLimit is not a middleware itself: call it with a limit, as in rateLimit\("100\/min"\)/),
  ));

test("require works too", () => {
  assert.equal(createRequire(import.meta.url)("tollkeeper/express").rateLimit, rateLimit);
});
