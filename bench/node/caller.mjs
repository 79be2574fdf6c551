// A process that calls one of the limiters without a server around it: 50 callers, each of which waits for its answer before it
// asks again. Told how many calls to make, it tells how much CPU they took, and how many were denied.
import { setImmediate } from "node:timers/promises";
import { DAY, LIMITER, flexible, limit, redisStore, tollkeeper } from "./limits.mjs";

const CALLERS = 50;
const users = process.env.USERS.split(",");

/** Each resolves to whether the call was allowed. */
const limiters = {
  /** What the loop costs by itself. */
  async none() {
    return async () => true;
  },
  async tollkeeper() {
    const limiter = await tollkeeper("{user}");
    return async (user) => (await limiter.check({ user })).allowed;
  },
  "rate-limiter-flexible": async () => consuming(await flexible()),
  "rate-limiter-flexible that blocks": async () => consuming(await flexible({ blocks: true })),
  async "express-rate-limit"() {
    const store = await redisStore();
    await store.init({ windowMs: DAY });
    return async (user) => (await store.increment(user)).totalHits <= limit;
  },
};

function consuming(limiter) {
  return (user) =>
    limiter.consume(user).then(
      () => true,
      (state) => {
        if (state instanceof Error) throw state;
        return false;
      },
    );
}

const call = await limiters[LIMITER]();

async function run(requests) {
  const before = process.cpuUsage();
  let [calls, denied] = [0, 0];
  const caller = async (first) => {
    for (let index = first; calls < requests; index++) {
      calls++;
      if (!(await call(users[index % users.length]))) denied++;
      // Other callers and timers take their turns, as in a server.
      if (index % 16 === 0) await setImmediate();
    }
  };
  await Promise.all(Array.from({ length: CALLERS }, (_, index) => caller(index * 7)));
  return { calls, denied, cpu: process.cpuUsage(before) };
}

process.on("message", async ({ requests }) => process.send(await run(requests)));
process.send({ isReady: true });
