// An Express application with one of the limiters.
import express from "express";
import { DAY, LIMITER, STORE, flexible, limit, redisStore, tollkeeper } from "./limits.mjs";

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
    return rateLimit({ limiter: await tollkeeper("{header.x-user}") });
  },
  async "express-rate-limit"() {
    const { rateLimit } = await import("express-rate-limit");
    return rateLimit({ windowMs: DAY, limit, standardHeaders: "draft-7", legacyHeaders: false, keyGenerator: keyOf, store: await redisStore() });
  },
  async "express-rate-limit on TollkeeperStore"() {
    const { rateLimit } = await import("express-rate-limit");
    const { TollkeeperStore } = await import("tollkeeper/express-rate-limit");
    const store = new TollkeeperStore({ store: STORE, timeout: 1 });
    return rateLimit({ windowMs: DAY, limit, standardHeaders: "draft-7", legacyHeaders: false, keyGenerator: keyOf, store });
  },
  "rate-limiter-flexible": async () => middleware(await flexible()),
  "rate-limiter-flexible that blocks": async () => middleware(await flexible({ blocks: true })),
};

/** Middleware as the documentation of rate-limiter-flexible has it. */
function middleware(limiter) {
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

export const app = express();
app.disable("x-powered-by");
app.disable("etag");
app.use(await limiters[LIMITER]());
app.get("/", (request, response) => response.send("home"));
