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
