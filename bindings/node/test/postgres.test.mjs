// Rules in a real Postgres: read when a limiter is made, followed while they change.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, beforeEach, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import express from "express";
import { Limiter, UsageError } from "tollkeeper";
import { rateLimit } from "tollkeeper/express";
import { Postgres, folder, serving, statuses } from "./world.mjs";

let file, postgres;
before(async () => {
  postgres = await Postgres.start();
  file = join(folder(), "tollkeeper.yaml");
  writeFileSync(file, `rules_from: ${postgres.url}\n`);
  // The tables, made as a limiter makes them.
  await Limiter.fromFile(file);
});
after(() => postgres.stop());
beforeEach(() => postgres.sql("delete from rate_limit_rule"));

const insert = (key, rate) =>
  postgres.sql(`insert into rate_limit_rule (name, key_pattern, rate, period) values ('per-user', '${key}', ${rate}, '1 hour')`);

/** Waits until a limiter has followed. */
async function comesTo(limiter, limit) {
  for (let attempt = 0; limiter.rules[0]?.limit !== limit; attempt++) {
    assert(attempt < 1200, `it does not follow: ${JSON.stringify(limiter.rules)}`);
    await sleep(50);
  }
}

const allowed = async (limiter, count) => {
  const found = [];
  for (let index = 0; index < count; index++) found.push((await limiter.check({ user_id: "42" })).allowed);
  return found;
};

test("rules are read and followed", async () => {
  await insert("{user_id}", 2);
  const limiter = await Limiter.fromFile(file);
  assert.deepEqual(await allowed(limiter, 3), [true, true, false]);
  await postgres.sql("update rate_limit_rule set rate = 5");
  await comesTo(limiter, "5/h");
  assert.deepEqual(await allowed(limiter, 4), [true, true, true, false], "two were used before");
  assert.throws(() => limiter.replaceRules(["5/min"]), (error) => error instanceof UsageError && /come from Postgres/.test(error.message));
});

test("middleware passes what changed rules need", async () => {
  await insert("{header.x-api-key}", 1);
  const limiter = await Limiter.fromFile(file);
  const app = express();
  app.use(rateLimit({ limiter }));
  app.get("/", (request, response) => response.send("home"));
  await serving(
    () => app.listen(0, "127.0.0.1"),
    async (url) => {
      const asked = (headers, count) => statuses(url, count, { headers });
      assert.deepEqual(await asked({ "x-api-key": "a" }, 2), [200, 429]);
      assert.deepEqual(await asked({ "x-tenant": "a" }, 2), [200, 200], "no rule needs it yet");
      await postgres.sql("update rate_limit_rule set key_pattern = '{header.x-tenant}', rate = 2");
      await comesTo(limiter, "2/h");
      assert.deepEqual(await asked({ "x-tenant": "b" }, 3), [200, 200, 429]);
    },
  );
});
