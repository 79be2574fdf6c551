// What every runtime has to do: runtimes.test.mjs runs it.
import { createServer } from "node:http";
import process from "node:process";
import { Limiter, RuleError, keyed } from "tollkeeper";
import { rateLimit } from "tollkeeper/express";

const limiter = keyed("2/h");
console.log("keyed:", ...[1, 2, 3].map(() => limiter.check("a").allowed));

const rule = { name: "per-user", key: "{user}", limit: "1/h" };
const memory = Limiter.fromRules([rule]);
console.log("memory:", memory.tryCheck({ user: "a" }).allowed, (await memory.check({ user: "a" })).allowed);

const namespace = `smoke-${Date.now()}-${process.pid}`;
const redis = Limiter.fromRules([{ ...rule, limit: "10/h" }], { store: process.env.STORE, namespace, timeout: 10 });
const verdicts = await Promise.all(Array.from({ length: 25 }, () => redis.check({ user: "a" })));
console.log("redis:", verdicts.filter(({ allowed }) => allowed).length, "of", verdicts.length);
await redis.close();

try {
  keyed("ten/s");
} catch (error) {
  console.log("error:", error instanceof RuleError && error.code);
}

const limit = rateLimit("2/h");
const server = createServer((request, response) => limit(request, response, () => response.end("home")));
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const statuses = [];
for (let index = 0; index < 3; index++) statuses.push((await fetch(`http://127.0.0.1:${server.address().port}/`, { headers: { connection: "close" } })).status);
console.log("http:", ...statuses);
server.close();
