// The package as users get it: packed, installed with the prebuilt addon for this platform, and without one.
import assert from "node:assert/strict";
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { before, test } from "node:test";
import { ROOT, folder, output } from "./world.mjs";

const PACKAGE = join(ROOT, "bindings/node");
const project = folder();
const npm = (args, cwd = project) => output("npm", [...args, "--offline", "--no-audit", "--no-fund", "--loglevel=error"], { cwd });
const ask = `require("tollkeeper").keyed("10/s").check("a").allowed`;
let packed;

before(async () => {
  packed = folder();
  await output(process.execPath, [join(PACKAGE, "prebuild.mjs"), "linux-x64-gnu", join(PACKAGE, "tollkeeper.node"), packed]);
  await npm(["pack", PACKAGE, "--pack-destination", packed]);
  writeFileSync(join(project, "package.json"), '{ "private": true }');
});

test("it holds what it needs and no more", async () => {
  const { stdout } = await npm(["pack", "--dry-run", "--json"], PACKAGE);
  const report = JSON.parse(stdout);
  const [{ files }] = Array.isArray(report) ? report : Object.values(report);
  const names = files.map(({ path }) => path);
  for (const name of ["lib/index.js", "lib/express.js", "types/index.d.ts", "README.md", "package.json"]) assert(names.includes(name), name);
  const strange = names.filter((name) => !/^(lib\/.*\.js|types\/.*\.d\.ts|package\.json|README\.md)$/.test(name));
  assert.deepEqual(strange, []);
});

test("versions agree", () => {
  const { version, optionalDependencies } = JSON.parse(readFileSync(join(PACKAGE, "package.json"), "utf8"));
  const [, workspace] = /^version = "(.*)"$/m.exec(readFileSync(join(ROOT, "bindings/Cargo.toml"), "utf8"));
  assert.equal(version, workspace);
  for (const [name, wanted] of Object.entries(optionalDependencies)) assert.equal(wanted, version, name);
});

test("installed with a prebuilt addon it works", { skip: process.arch !== "x64" }, async () => {
  const { version } = JSON.parse(readFileSync(join(PACKAGE, "package.json"), "utf8"));
  const addon = join(packed, "linux-x64-gnu");
  const manifest = JSON.parse(readFileSync(join(addon, "package.json"), "utf8"));
  assert.deepEqual([manifest.os, manifest.cpu, manifest.libc, manifest.version], [["linux"], ["x64"], ["glibc"], version]);
  await npm(["install", "--omit=optional", join(packed, `tollkeeper-${version}.tgz`)]);
  // What npm does with an optional dependency that fits the platform.
  const place = join(project, "node_modules/tollkeeper-linux-x64-gnu");
  mkdirSync(place, { recursive: true });
  for (const name of manifest.files.concat("package.json")) copyFileSync(join(addon, name), join(place, name));
  assert.equal((await output(process.execPath, ["-p", ask], { cwd: project })).stdout, "true\n");
  const imported = `import { keyed } from "tollkeeper"; import { rateLimit } from "tollkeeper/express"; console.log(keyed("1/s").check("a").allowed, typeof rateLimit)`;
  assert.equal((await output(process.execPath, ["--input-type=module", "-e", imported], { cwd: project })).stdout, "true function\n");
});

test("without an addon it says what to do", async () => {
  const bare = folder();
  mkdirSync(join(bare, "lib"));
  for (const name of ["package.json", "lib/addon.js"]) copyFileSync(join(PACKAGE, name), join(bare, name));
  const tell = (prepare) =>
    output(process.execPath, ["-e", `${prepare}; try { require("./lib/addon.js") } catch (error) { console.log(error.code, error.message) }`], { cwd: bare });
  const { stdout: missing } = await tell("");
  assert.match(missing, /^ERR_TOLLKEEPER_ADDON tollkeeper needs the package tollkeeper-linux-\w+-\w+, which is not installed.*--omit=optional/);
  const { stdout: strange } = await tell(`Object.defineProperty(process, "arch", { value: "riscv64" })`);
  assert.match(strange, /no prebuilt addon for linux-riscv64-gnu; there are darwin-arm64, .*win32-x64-msvc\. Elsewhere build/);
});
