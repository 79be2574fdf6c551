// Other versions of Node, and Bun and Deno: the same program says the same.
import assert from "node:assert/strict";
import { copyFileSync, existsSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { ROOT, Redis, folder, output } from "./world.mjs";

const PACKAGES = join(ROOT, "bindings/node/node_modules");
const RUNTIMES = {
  "Node of this machine": [process.execPath],
  "Node 18": [join(PACKAGES, "node18/bin/node")],
  "Node 22": [join(PACKAGES, "node22/bin/node")],
  "Node 26": [join(PACKAGES, "node26/bin/node")],
  Bun: [join(PACKAGES, "@oven/bun-linux-x64-baseline/bin/bun")],
  Deno: [join(PACKAGES, "@deno/linux-x64-glibc/deno"), "run", "--allow-all", "--no-lock", "--node-modules-dir=manual"],
};

const project = folder();
writeFileSync(join(project, "package.json"), '{ "dependencies": { "tollkeeper": "*" } }');
symlinkSync(PACKAGES, join(project, "node_modules"));
for (const name of ["smoke.mjs", "smoke.cjs"]) copyFileSync(new URL(name, import.meta.url), join(project, name));

let redis;
before(async () => (redis = await Redis.start()));
after(() => redis.kill());

for (const [name, [program, ...args]] of Object.entries(RUNTIMES)) {
  // The others come as packages for this platform only.
  test(name, { skip: program !== process.execPath && process.arch !== "x64" }, async () => {
    assert(existsSync(program), `${program} is missing: run ./run node`);
    const env = { ...process.env, STORE: redis.url, DENO_NO_UPDATE_CHECK: "1" };
    const { stdout } = await output(program, [...args, "smoke.mjs"], { cwd: project, env });
    assert.deepEqual(stdout.trim().split("\n"), ["keyed: true true false", "memory: true false", "redis: 10 of 25", "error: ERR_TOLLKEEPER_RULE", "http: 200 200 429"]);
    const { stdout: required } = await output(program, [...args, "smoke.cjs"], { cwd: project, env });
    assert.equal(required.trim(), "required: true");
  });
}
