// The addon for this machine: a local build beside the package if there is one, otherwise the prebuilt package.
"use strict";

const { existsSync } = require("node:fs");
const { join } = require("node:path");
const { optionalDependencies } = require("../package.json");

/** Prebuilt packages are named after this one, so that they need no organization on npm. */
const PREFIX = "tollkeeper-";

/** `linux-x64-gnu`, `darwin-arm64`, ...: how the prebuilt packages are named. */
function platform() {
  const { arch, platform } = process;
  if (platform === "linux") return `linux-${arch}-${isMusl() ? "musl" : "gnu"}`;
  return platform === "win32" ? `win32-${arch}-msvc` : `${platform}-${arch}`;
}

/** musl has its loader at a known path. Process reports would show it too, but are slow to create. */
function isMusl() {
  const name = { x64: "x86_64", arm64: "aarch64" }[process.arch] ?? process.arch;
  return existsSync(`/lib/ld-musl-${name}.so.1`) && !existsSync("/lib64/ld-linux-x86-64.so.2") && !existsSync("/lib/ld-linux-aarch64.so.1");
}

function load() {
  const here = join(__dirname, "..", "tollkeeper.node");
  if (existsSync(here)) return require(here);
  const name = PREFIX + platform();
  try {
    return require(name);
  } catch (cause) {
    const error = new Error(problem(name, cause), { cause });
    error.code = "ERR_TOLLKEEPER_ADDON";
    throw error;
  }
}

function problem(name, cause) {
  if (!(name in optionalDependencies)) {
    const names = Object.keys(optionalDependencies).map((name) => name.slice(PREFIX.length));
    return (
      `tollkeeper has no prebuilt addon for ${name.slice(PREFIX.length)}; there are ${names.join(", ")}. ` +
      "Elsewhere build bindings/node from the sources, or run the service and ask it over HTTP."
    );
  }
  if (cause.code === "MODULE_NOT_FOUND") {
    return (
      `tollkeeper needs the package ${name}, which is not installed. It is an optional dependency: install again without ` +
      "--omit=optional (--no-optional), and on this platform if node_modules was copied from another one."
    );
  }
  return `tollkeeper cannot load ${name}: ${cause.message}`;
}

module.exports = load();
