// Makes the package of a prebuilt addon: `node prebuild.mjs linux-x64-gnu ADDON FOLDER` writes FOLDER/linux-x64-gnu.
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const [platform, addon, folder] = process.argv.slice(2);
const { license, name, optionalDependencies, version } = JSON.parse(readFileSync(new URL("package.json", import.meta.url), "utf8"));
const full = `${name}-${platform}`;
if (!folder || !(full in optionalDependencies)) {
  const platforms = Object.keys(optionalDependencies).map((full) => full.slice(name.length + 1));
  console.error(`usage: node prebuild.mjs PLATFORM ADDON FOLDER; platforms are ${platforms.join(", ")}`);
  process.exit(2);
}

const [os, cpu, abi] = platform.split("-");
const libc = { gnu: ["glibc"], musl: ["musl"] }[abi];
const manifest = {
  name: full,
  version,
  description: `The addon of the package ${name} for ${platform}`,
  license,
  main: "tollkeeper.node",
  files: ["tollkeeper.node", "README.md"],
  os: [os],
  cpu: [cpu],
  libc,
  engines: { node: ">=18" },
};

const place = join(folder, platform);
mkdirSync(place, { recursive: true });
copyFileSync(addon, join(place, "tollkeeper.node"));
writeFileSync(join(place, "package.json"), `${JSON.stringify(manifest, null, 2)}\n`);
writeFileSync(join(place, "README.md"), `# ${full}\n\nThe addon of [${name}](https://www.npmjs.com/package/${name}) for ${platform}. Install \`${name}\`, not this.\n`);
