// ioredis against a running service: node client.mjs FOLDER-OF-PACKAGES PORT PASSWORD
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const [packages, port, password] = process.argv.slice(2);
const { Redis } = createRequire(`${packages}/package.json`)("ioredis");

const client = new Redis({ port: Number(port), password, connectionName: "tests", maxRetriesPerRequest: 1 });
client.on("error", (error) => {
  console.error(error);
  process.exit(1);
});

assert.equal(await client.ping(), "PONG");
assert.equal(await client.client("GETNAME"), "tests");
assert.deepEqual(await client.call("CL.THROTTLE", "ioredis", 15, 30, 60), [0, 16, 15, -1, 2]);

const verdict = await client.call("TOLLKEEPER.CHECK", "user_id", "ioredis", "plan", "free");
assert.deepEqual(verdict.slice(0, 5), [1, null, 0, 0, "store"]);
assert.deepEqual(verdict.at(-1).slice(0, 5), ["free-user", "ioredis", 1, 50, 49]);

const pipeline = client.pipeline();
for (let n = 0; n < 1000; n += 1) pipeline.call("CL.THROTTLE", "ioredis:pipeline", 999, 1, 60);
const remaining = (await pipeline.exec()).map(([error, answer]) => error ?? answer[2]);
assert.deepEqual(remaining, Array.from({ length: 1000 }, (_, n) => 999 - n));

await assert.rejects(client.get("key"), /unknown command 'GET'/i);
await client.quit();
console.log("ioredis: fine");
