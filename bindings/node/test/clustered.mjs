// An application of three processes, for cluster.test.mjs.
import cluster from "node:cluster";
import { appendFileSync } from "node:fs";
import express from "express";
import { rateLimit } from "tollkeeper/express";

const { STORE, NAMESPACE, LIMIT, PORT, SERVED } = process.env;
// Made in the primary too, as applications do that share their set-up: nothing of it reaches the workers.
const limit = rateLimit(`${LIMIT}/day`, { store: STORE, namespace: NAMESPACE, timeout: 5 });

if (cluster.isPrimary) {
  await limit.limiter.connect();
  const workers = Array.from({ length: 3 }, () => cluster.fork());
  await Promise.all(workers.map((worker) => new Promise((resolve) => worker.on("listening", resolve))));
  process.send({ workers: workers.length });
  process.on("message", () => {
    for (const worker of workers) worker.process.kill();
    process.disconnect();
  });
} else {
  const app = express();
  app.use(limit);
  app.get("/", (request, response) => {
    appendFileSync(SERVED, ".");
    response.send("home");
  });
  app.listen(PORT, "127.0.0.1");
}
