// The examples run, on memory and on Redis, and what TypeScript thinks of the package.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, readdirSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { before, test } from "node:test";
import { ROOT, Redis, folder, freePort, listening, output, statuses } from "./world.mjs";

const PACKAGES = join(ROOT, "bindings/node/node_modules");
const TSC = join(PACKAGES, "typescript/bin/tsc");
const STRICT = ["--strict", "--noUncheckedIndexedAccess", "--exactOptionalPropertyTypes", "--module", "nodenext", "--target", "es2022", "--experimentalDecorators", "--types", "node"];

// A project as a user has it: files beside a folder of packages.
const project = folder();
symlinkSync(PACKAGES, join(project, "node_modules"));
for (const [from, names] of [
  [join(ROOT, "examples/node"), readdirSync(join(ROOT, "examples/node"))],
  [import.meta.dirname ?? new URL(".", import.meta.url).pathname, ["types.mts", "types.cts"]],
]) {
  for (const name of names) copyFileSync(join(from, name), join(project, name));
}

before(() => output(process.execPath, [TSC, ...STRICT, "nestjs_app.mts"], { cwd: project }));

test("types are strict, for import and for require", async () => {
  await output(process.execPath, [TSC, ...STRICT, "--noEmit", "types.mts", "types.cts"], { cwd: project });
});

test("plain", async () => {
  const { stdout } = await output(process.execPath, ["plain.mjs"], { cwd: project });
  assert.deepEqual(stdout.trim().split("\n"), [
    "allowed: true, left: 4",
    "exporting",
    "tokens: 7689 left",
    "allowed: false, by: tokens, wait: 11327 s",
  ]);
});

for (const name of ["express_app", "express_rate_limit_app", "fastify_app", "hono_app", "koa_app", "nestjs_app"]) {
  for (const kind of ["memory", "redis"]) {
    test(`${name} on ${kind}`, async (t) => {
      const redis = kind === "redis" ? await Redis.start() : undefined;
      if (redis) t.after(() => redis.kill());
      const port = await freePort();
      const env = { ...process.env, STORE: redis?.url ?? "memory:", PORT: port };
      const child = spawn(process.execPath, [`${name}.mjs`], { cwd: project, env, stdio: "inherit" });
      t.after(async () => {
        child.kill();
        if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
      });
      await listening(port, child);
      assert.deepEqual(await statuses(`http://127.0.0.1:${port}/login`, 6, { method: "POST" }), [200, 200, 200, 200, 200, 429]);
    });
  }
}
