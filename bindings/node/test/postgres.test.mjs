// Rules in a real Postgres: read when a limiter is made, followed while they change.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, beforeEach, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import express from "express";
import { ConfigError, Limiter, StoreError, UsageError } from "tollkeeper";
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

test("from code, with the version in force", async () => {
  await insert("{user_id}", 1);
  const limiter = await Limiter.fromPostgres(postgres.url);
  assert.deepEqual(await allowed(limiter, 2), [true, false]);
  const { version, refused, unreachable } = limiter.rulesStatus;
  assert(version > 0 && refused === null && unreachable === null, JSON.stringify(limiter.rulesStatus));
  assert.equal(Limiter.fromRules(["1/s by user"]).rulesStatus, null);
  await postgres.sql("insert into rate_limit_rule (name, key_pattern, rate, period) values ('broken', '{', 1, '1 hour')");
  for (let attempt = 0; limiter.rulesStatus.refused === null; attempt++) {
    assert(attempt < 1200, "a broken rule is not refused");
    await sleep(50);
  }
  assert.match(limiter.rulesStatus.refused.problem, /broken/);
  assert.deepEqual([limiter.rulesStatus.version, limiter.rules.length], [version, 1], "the last good rules stay");
});

test("a snapshot serves a start without the database", async () => {
  const own = await Postgres.start();
  const snapshot = join(folder(), "rules.snapshot");
  await Limiter.fromPostgres(own.url, { snapshot });
  await own.sql("insert into rate_limit_rule (name, key_pattern, rate, period) values ('per-user', '{user_id}', 2, '1 hour')");
  // Not async: reading blocks until the rules are there.
  await comesTo(Limiter.fromFileSync(rulesFile(own.url, snapshot)), "2/h");
  await own.stop();
  const limiter = await Limiter.fromPostgres(own.url, { snapshot });
  assert.deepEqual(await allowed(limiter, 3), [true, true, false]);
  await assert.rejects(Limiter.fromPostgres(own.url), (error) => error instanceof StoreError && /rules_from: .*rules_snapshot/.test(error.message));
  await assert.rejects(Limiter.fromPostgres("mysql://127.0.0.1/limits"), (error) => error instanceof ConfigError && /rules_from: is not a Postgres URL/.test(error.message));
  await assert.rejects(Limiter.fromPostgres(own.url, { snapshots: "x" }), /Limiter.fromPostgres: there is no option `snapshots`/);
});

function rulesFile(url, snapshot) {
  const path = join(folder(), "tollkeeper.yaml");
  writeFileSync(path, `rules_from: ${url}\nrules_snapshot: ${snapshot}\n`);
  return path;
}

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
