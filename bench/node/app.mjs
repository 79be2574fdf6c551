// An Express application with one of the limiters, in a process of its own. It tells its port, and its CPU time when asked.
import express from "express";

const { LIMITER, STORE, LIMIT, LEASE } = process.env;
const limit = Number(LIMIT);
const DAY = 24 * 3600 * 1000;

// One user a header, so that keys cost all of them the same.
const keyOf = (request) => request.headers["x-user"] ?? "nobody";

const limiters = {
  async none() {
    return (request, response, next) => next();
  },
  async deny() {
    return (request, response) => response.status(429).send("Too Many Requests");
  },
  async tollkeeper() {
    const { rateLimit } = await import("tollkeeper/express");
    const { Limiter } = await import("tollkeeper");
    const rule = { name: "bench", key: "{header.x-user}", limit: `${limit}/day`, algorithm: "fixed_window" };
    // The deny cache is on by default; leases are asked for.
    if (LEASE) Object.assign(rule, { lease: "auto", algorithm: "token_bucket" });
    return rateLimit({ limiter: Limiter.fromRules([rule], { store: STORE, timeout: 1 }) });
  },
  async "express-rate-limit"() {
    const { rateLimit } = await import("express-rate-limit");
    return rateLimit({ windowMs: DAY, limit, standardHeaders: "draft-7", legacyHeaders: false, keyGenerator: keyOf, store: await theirs() });
  },
  async "express-rate-limit on TollkeeperStore"() {
    const { rateLimit } = await import("express-rate-limit");
    const { TollkeeperStore } = await import("tollkeeper/express-rate-limit");
    const store = new TollkeeperStore({ store: STORE, timeout: 1 });
    return rateLimit({ windowMs: DAY, limit, standardHeaders: "draft-7", legacyHeaders: false, keyGenerator: keyOf, store });
  },
  "rate-limiter-flexible": () => flexible({}),
  // Its own way of not asking for those that are denied.
  "rate-limiter-flexible that blocks": () => flexible({ inMemoryBlockOnConsumed: limit + 1 }),
};

async function flexible(blocking) {
  const { RateLimiterMemory, RateLimiterRedis } = await import("rate-limiter-flexible");
  const options = { points: limit, duration: DAY / 1000 };
  const limiter =
    STORE === "memory:"
      ? new RateLimiterMemory(options)
      : new RateLimiterRedis({ ...options, ...blocking, storeClient: await redis() });
  return (request, response, next) => {
    limiter.consume(keyOf(request)).then(
      (state) => {
        headers(response, state);
        next();
      },
      (state) => {
        if (state instanceof Error) return next(state);
        headers(response, state);
        response.set("retry-after", String(Math.ceil(state.msBeforeNext / 1000)));
        response.status(429).send("Too Many Requests");
      },
    );
  };
}

function headers(response, state) {
  response.set("ratelimit-limit", String(limit));
  response.set("ratelimit-remaining", String(state.remainingPoints));
  response.set("ratelimit-reset", String(Math.ceil(state.msBeforeNext / 1000)));
}

async function redis() {
  const { default: Redis } = await import("ioredis");
  return new Redis(STORE);
}

async function theirs() {
  if (STORE === "memory:") return undefined;
  const { RedisStore } = await import("rate-limit-redis");
  const client = await redis();
  return new RedisStore({ sendCommand: (command, ...args) => client.call(command, ...args) });
}

const app = express();
app.disable("x-powered-by");
app.disable("etag");
app.use(await limiters[LIMITER]());
app.get("/", (request, response) => response.send("home"));
const server = app.listen(0, "127.0.0.1", () => process.send({ port: server.address().port }));
process.on("message", () => process.send({ cpu: process.cpuUsage() }));
