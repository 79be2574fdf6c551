import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:http2";
import { test } from "node:test";
import Fastify from "fastify";
import { limited, rateLimit, verdictOf } from "tollkeeper/fastify";
import { conforms } from "./web.mjs";

conforms("Fastify", async ({ all, login, slow }) => {
  const app = Fastify();
  if (all) {
    const [limit, options] = all[0]?.limiter ? [undefined, all[0]] : all;
    await app.register(rateLimit, { limit, ...options });
  }
  app.get("/", async () => "home");
  app.post("/login", login ? { onRequest: limited(...login) } : {}, async () => "in");
  app.get("/slow", async () => slow.then(() => "slow"));
  await app.listen({ port: 0, host: "127.0.0.1" });
  return app.server;
});

test("Fastify: limits of routes by their config", async () => {
  const app = Fastify();
  await app.register(rateLimit, { limit: "100/min", name: "requests" });
  app.get("/login", { config: { rateLimit: "1/min" } }, async (request) => verdictOf(request).rules.map(({ rule }) => rule));
  app.get("/search", { config: { rateLimit: { limit: "1/min", by: "query.q" } } }, async () => "found");
  app.get("/health", { config: { rateLimit: false } }, async () => "ok");
  const ask = (url, method = "GET") => app.inject({ url, method });
  assert.deepEqual((await ask("/login")).json(), ["requests", "GET:/login"]);
  assert.equal((await ask("/login")).statusCode, 429);
  assert.equal((await ask("/login", "HEAD")).statusCode, 429, "HEAD counts with GET");
  assert.deepEqual([(await ask("/search?q=a")).statusCode, (await ask("/search?q=b")).statusCode, (await ask("/search?q=a")).statusCode], [200, 200, 429]);
  assert.equal((await ask("/health")).headers.ratelimit, undefined);
  assert.equal(app.rateLimiter.rules[0].name, "requests");
  await app.close();
});

// `onRoute` had not seen them, so their limits were ignored without a word.
test("Fastify: routes are limited although nobody awaits the plugin", async () => {
  const app = Fastify();
  app.register(rateLimit, { limit: "100/min", name: "all" });
  app.get("/early", { config: { rateLimit: "1/min" } }, async () => "early");
  app.register(async (inner) => inner.get("/inner", { config: { rateLimit: { limit: "1/min", by: "global" } } }, async () => "inner"));
  app.get("/broken", { config: { rateLimit: "ten/min" } }, async () => "open to all");
  app.get("/open", { config: { rateLimit: false } }, async () => "open");
  const codes = async (url, methods) => {
    const found = [];
    for (const method of methods) found.push((await app.inject({ url, method })).statusCode);
    return found;
  };
  assert.deepEqual(await codes("/early", ["GET", "HEAD", "GET"]), [200, 429, 429]);
  assert.deepEqual(await codes("/inner", ["GET", "GET"]), [200, 429]);
  assert.deepEqual(await codes("/broken", ["GET"]), [500]);
  assert.deepEqual(await codes("/open", ["GET", "GET"]), [200, 200]);
  assert.match((await app.inject("/early")).headers["ratelimit-policy"], /^"all";q=100;w=60,"GET:\/early";q=1;w=60$/);
  await app.close();
});

// The one that was added first had its limit on all of them: 100/min, where the other said 1/min.
test("Fastify: routes of one path, or of paths that rules cannot be named after, have limits of their own", async () => {
  for (const isAwaited of [true, false]) {
    const app = Fastify();
    const plugin = app.register(rateLimit, {});
    if (isAwaited) await plugin;
    const route = (url, rateLimit, version) => app.get(url, { constraints: version ? { version } : {}, config: { rateLimit } }, async () => "ok");
    route("/versions", "100/min", "1.0.0");
    route("/versions", "1/min", "2.0.0");
    route("/выход", { limit: "100/min" });
    route("/вход", { limit: "1/min" });
    const codes = async (url, version) => {
      const found = [];
      const headers = version ? { "accept-version": version } : {};
      for (const method of ["GET", "HEAD", "GET"]) found.push((await app.inject({ url, method, headers })).statusCode);
      return found;
    };
    assert.deepEqual(await codes("/versions", "1.x"), [200, 200, 200]);
    assert.deepEqual(await codes("/versions", "2.x"), [200, 429, 429]);
    assert.deepEqual(await codes(encodeURI("/выход")), [200, 200, 200]);
    assert.deepEqual(await codes(encodeURI("/вход")), [200, 429, 429]);
    await app.close();
  }
});

// The limit of the config was ignored.
test("Fastify: a route may have two limits, one of them in its config", async () => {
  const app = Fastify();
  await app.register(rateLimit);
  const both = { config: { rateLimit: "3/min" }, onRequest: limited("5/min", { name: "own" }) };
  app.get("/", both, async (request) => verdictOf(request).rules.map(({ rule }) => rule));
  assert.deepEqual((await app.inject("/")).json(), ["own", "GET:/"]);
  const codes = [];
  for (const method of ["HEAD", "GET", "GET"]) codes.push((await app.inject({ url: "/", method })).statusCode);
  assert.deepEqual(codes, [200, 200, 429]);
  await app.close();
});

// Options of @fastify/rate-limit were taken, and nobody was limited.
test("Fastify: the count of a route is reset by its hook", async () => {
  const app = Fastify();
  const search = limited("1/min", { name: "search" });
  app.get("/search", { onRequest: search }, async () => "found");
  const ask = async () => (await app.inject("/search")).statusCode;
  assert.deepEqual([await ask(), await ask()], [200, 429]);
  assert.equal(await search.limiter.reset("search", "127.0.0.1"), true);
  assert.equal(await ask(), 200);
  await app.close();
});

test("Fastify: options without a limit are refused", async () => {
  for (const [options, message] of [
    [{ max: 100, timeWindow: "1 minute" }, /there is no option `max`; write the limit with its window/],
    [{ by: "header.x-api-key" }, /`by` needs a `limit`; add one, or set `by` in the config of routes/],
    ["100/min", /options must be an object such as \{ limit: "100\/min" \}/],
  ]) {
    const app = Fastify();
    app.register(rateLimit, options);
    await assert.rejects(app.ready(), message);
  }
});

test("Fastify: mistakes stop the application from starting", async () => {
  const app = Fastify();
  app.register(rateLimit, { limit: "ten/min" });
  await assert.rejects(app.ready(), /"ten" is not a whole number/);
});

test("Fastify: trustProxy says which proxies are trusted", async () => {
  const app = Fastify({ trustProxy: "127.0.0.1" });
  await app.register(rateLimit, { limit: "1/min" });
  app.get("/", async () => "home");
  const from = async (address) => (await app.inject({ url: "/", headers: { "x-forwarded-for": address } })).statusCode;
  assert.deepEqual([await from("1.1.1.1"), await from("2.2.2.2"), await from("2.2.2.2")], [200, 200, 429]);
  await app.close();
});

// The request was never answered, because only what a promise resolved to was sent.
test("Fastify: a function returns the answer to a denied request", async () => {
  const app = Fastify();
  await app.register(rateLimit, { limit: "1/min", by: "global", onDenied: (request, reply, verdict) => ({ wait: verdict.retryAfter > 0 }) });
  app.get("/", async () => "home");
  await app.inject("/");
  const denied = await app.inject("/");
  assert.deepEqual([denied.statusCode, denied.json()], [429, { wait: true }]);
  assert(denied.headers["retry-after"]);
  await app.close();
});

test("Fastify: failures on HTTP/2 count, and those of routes", async () => {
  const app = Fastify({ http2: true });
  await app.register(rateLimit);
  const countWhen = (request, reply) => reply.statusCode === 401;
  app.get("/:word", { config: { rateLimit: { limit: "2/min", countWhen } } }, async ({ params }, reply) => reply.code(params.word === "right" ? 200 : 401).send("x"));
  await app.listen({ port: 0, host: "127.0.0.1" });
  const client = connect(`http://127.0.0.1:${app.server.address().port}`);
  const ask = async (path) => {
    const stream = client.request({ ":path": path });
    const [headers] = await once(stream, "response");
    stream.resume();
    await once(stream, "close");
    return headers[":status"];
  };
  const found = [];
  for (const word of ["right", "right", "right", "wrong", "right", "wrong", "right"]) found.push(await ask(`/${word}`));
  assert.deepEqual(found, [200, 200, 200, 401, 200, 401, 429]);
  client.close();
  await app.close();
});
