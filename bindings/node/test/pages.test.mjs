// What the page of the package shows runs as it is written.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { ROOT, Redis, folder, freePort, listening, output, statuses } from "./world.mjs";

const PAGE = readFileSync(join(ROOT, "docs/guide/node.md"), "utf8");

/** The blocks by the heading that they are under. */
const blocks = new Map();
for (const section of PAGE.split(/^#+ /m).slice(1)) {
  const found = [...section.matchAll(/^```[jt]s\n([^]*?)^```/gm)].map(([, code]) => code);
  if (found.length > 0) blocks.set(section.slice(0, section.indexOf("\n")), found);
}

/** Applications, and the status of what they allow. */
const SERVED = { Start: 200, Koa: 200, Hono: 200, NestJS: 201 };

/** What a reader has at that place of the page. */
const BEFORE = {
  "Rules in Postgres": 'import { Limiter } from "tollkeeper";',
  "Several requests in one call": "",
  "Exceptions for single keys": "",
  "Costs that are known later": "const askTheModel = async () => 2311;",
  "Limits that differ by customer": "",
  "Concurrency slots": 'import { Limiter } from "tollkeeper"; const runExport = async () => {};',
};
const LIMITER = `
  import { Limiter as Made } from "tollkeeper";
  const limiter = Made.fromRules([
    { name: "per-user", key: "{user_id}", limit: "10,000/day" },
    { name: "per-address", key: "{ip}", limit: "10/s" },
  ]);
`;

const TSC = join(ROOT, "bindings/node/node_modules/typescript/bin/tsc");
const STRICT = ["--strict", "--module", "nodenext", "--target", "es2022", "--experimentalDecorators", "--types", "node"];

const project = folder();
symlinkSync(join(ROOT, "bindings/node/node_modules"), join(project, "node_modules"));
writeFileSync(join(project, "tollkeeper.yaml"), "rules:\n  - { name: all, key: '{user_id}', limit: 10/s }\n");
let redis;
before(async () => (redis = await Redis.start()));
after(() => redis.kill());

test("all of it is tried", () => {
  const wanted = ["A single limit", "Rules", ...Object.keys(BEFORE), ...Object.keys(SERVED), "Tests"];
  assert.deepEqual([...blocks.keys()].sort(), wanted.sort());
});

for (const [title, codes] of blocks) {
  if (title in SERVED) continue;
  test(`${title} runs`, async () => {
    for (const code of codes) {
      const own = /\bconst limiter\b/.test(code) ? "" : LIMITER;
      const text = `${own}\n${BEFORE[title] ?? ""}\n${code.replaceAll("redis://127.0.0.1:6379", redis.url)}`;
      const file = join(project, "block.mjs");
      // Nobody has that database: its error is the one that the page describes.
      writeFileSync(file, title === "Rules in Postgres" ? text.replace(/^(const limiter = )([^]*);$/m, refused) : text);
      const { stderr } = await output(process.execPath, [file], { cwd: project });
      assert.equal(stderr, "");
    }
  });
}

const refused = (_, __, call) => `${call}.then(() => process.exit(1), (error) => { if (error.code !== "ERR_TOLLKEEPER_STORE") throw error; });`;

test("Start has ten lines", () => {
  const [code] = blocks.get("Start");
  assert(code.split("\n").filter((line) => line.trim()).length <= 10, code);
});

for (const [title, allowed] of Object.entries(SERVED)) {
  test(`${title} is an application that limits`, async (t) => {
    const [code] = blocks.get(title);
    const port = await freePort();
    const here = code.replace(/listen\(3000\)|port: 3000/, (place) => place.replace("3000", port));
    assert.notEqual(here, code);
    const name = `${title}.m${title === "NestJS" ? "t" : "j"}s`;
    writeFileSync(join(project, name), here);
    if (title === "NestJS") await output(process.execPath, [TSC, ...STRICT, name], { cwd: project });
    const child = spawn(process.execPath, [`${title}.mjs`], { cwd: project, stdio: ["ignore", "ignore", "inherit"] });
    t.after(async () => {
      child.kill();
      if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
    });
    await listening(port, child);
    const url = `http://127.0.0.1:${port}/login`;
    const first = await fetch(url, { method: "POST" });
    assert.match(first.headers.get("ratelimit-policy"), /;q=20;w=12,".*";q=5;w=60$/);
    assert.deepEqual([first.status, ...(await statuses(url, 5, { method: "POST" }))], [...Array(5).fill(allowed), 429]);
  });
}
