// The limiters that are compared, each with the same limit, the same store and one key a user.
export const { LIMITER, STORE, LIMIT, LEASE } = process.env;
export const limit = Number(LIMIT);
export const DAY = 24 * 3600 * 1000;

/** Tollkeeper with one rule; `key` is its key template. */
export async function tollkeeper(key) {
  const { Limiter } = await import("tollkeeper");
  const rule = { name: "bench", key, limit: `${limit}/day`, algorithm: "fixed_window" };
  // The deny cache is on by default; leases are asked for.
  if (LEASE) Object.assign(rule, { name: "leased", lease: "auto" });
  return Limiter.fromRules([rule], { store: STORE, timeout: 1 });
}

/** rate-limiter-flexible; `blocks` is its own way of not asking for those that are denied. */
export async function flexible({ blocks = false } = {}) {
  const { RateLimiterMemory, RateLimiterRedis } = await import("rate-limiter-flexible");
  const options = { points: limit, duration: DAY / 1000 };
  if (STORE === "memory:") return new RateLimiterMemory(options);
  const blocking = blocks ? { inMemoryBlockOnConsumed: limit + 1 } : {};
  return new RateLimiterRedis({ ...options, ...blocking, storeClient: await redis() });
}

/** The store of express-rate-limit, not yet initialized; undefined for its own one in memory. */
export async function redisStore() {
  if (STORE === "memory:") return undefined;
  const { RedisStore } = await import("rate-limit-redis");
  const client = await redis();
  return new RedisStore({ sendCommand: (command, ...args) => client.call(command, ...args) });
}

async function redis() {
  const { default: Redis } = await import("ioredis");
  return new Redis(STORE);
}
