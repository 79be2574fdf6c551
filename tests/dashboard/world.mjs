// What the tests of the dashboard share: the real service with traffic, and a real browser.
//
// TOLLKEEPER_BINARY names the service, TOLLKEEPER_PACKAGES the folder of the Node packages, TOLLKEEPER_PICTURES a folder for
// pictures of every state. `cargo test -p tollkeeper-server --test service dashboard` sets them.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const { TOLLKEEPER_BINARY: binary, TOLLKEEPER_PACKAGES: packages, TOLLKEEPER_PICTURES: pictures } = process.env;
const require = createRequire(`${packages}/package.json`);
const { chromium } = require("playwright-core");
const axeSource = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
mkdirSync(pictures, { recursive: true });

export const RULES = `
rules:
  - { name: everybody, scope: global, key: global, limit: 100_000/s, description: the whole service }
  - { name: login, scope: ip, key: "{ip}", limit: 5/min, algorithm: sliding_window_log, when: { path: /login } }
  - { name: free-user, scope: user, key: "{user_id}", limit: 1/s, burst: 2, when: { plan: free } }
  - { name: watched, scope: tenant, key: "{tenant}", limit: 1_000/min, mode: shadow, when: { plan: free } }
  - { name: by-key, key: "{api_key}", limit: 3/h }
  - { name: pair, key: "{tenant}:{ip}", limit: 2/h, when: { path: /x } }
`;

/// A folder that is gone when the tests are over.
export function folder() {
  const path = mkdtempSync(join(tmpdir(), "tollkeeper-dashboard-"));
  process.on("exit", () => rmSync(path, { recursive: true, force: true }));
  return path;
}

/// The binary as a running service.
export class Service {
  static async start(rules = RULES, { args = [], port = 0 } = {}) {
    const service = new Service();
    service.config = join(folder(), "rules.yaml");
    writeFileSync(service.config, rules);
    service.args = args;
    await service.run(port);
    return service;
  }

  async run(port) {
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("TOLLKEEPER_")));
    const args = ["serve", "--http", `127.0.0.1:${port}`, "--config", this.config, ...this.args];
    this.child = spawn(binary, args, { env, stdio: ["ignore", "pipe", "inherit"] });
    this.url = undefined;
    for await (const line of createInterface({ input: this.child.stdout })) {
      this.url ??= /http:\/\/[0-9.:]+/.exec(line)?.[0];
      // The address of the page, as it is printed: with the token, where the service has made one.
      this.page = /^dashboard: (.*)/.exec(line)?.[1];
      if (this.page) break;
    }
    if (!this.page) throw new Error("the service did not start");
    this.child.stdout.resume();
  }

  /// Gone, and back at the same address.
  async end() {
    this.child.kill("SIGKILL");
    if (this.child.exitCode === null && this.child.signalCode === null) await once(this.child, "exit");
  }

  again() {
    return this.run(new URL(this.url).port);
  }

  async check(checks) {
    const response = await fetch(`${this.url}/v1/check`, { method: "POST", body: JSON.stringify({ checks }) });
    if (!response.ok) throw new Error(await response.text());
    return (await response.json()).results;
  }
}

/// Chosen by somebody who means harm: markup, a line turned around, control characters, and no end.
export const HOSTILE = [
  `<img src=x onerror="document.title='owned'">`,
  "abc\u202Egnp.exe\u202C",
  "line\nbreak\u0000\u001b[2J\u200b",
  "long-".repeat(180),
  `"><script>document.title='owned'</script>`,
];

const times = (number, make) => Array.from({ length: number }, (_, index) => make(index));
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/// An attack on the login, users whose limit is too low for them and who wait before retrying, and what is quiet.
export async function traffic(service) {
  const login = (ip) => ({ attributes: { path: "/login", ip, method: "POST" } });
  const work = (user) => ({ attributes: { plan: "free", user_id: user, tenant: "acme", ip: "198.51.100.7", method: "GET", path: "/api" } });
  const users = times(30, (index) => `user-${index}`);
  for (const ip of times(40, (index) => `198.51.100.${index}`)) await service.check([login(ip), login(ip)]);
  for (let turn = 0; turn < 3; turn += 1) {
    await service.check(times(60, () => login("203.0.113.66")));
    await service.check(users.flatMap((user) => times(4, () => work(user))));
    if (turn < 2) await pause(1_100);
  }
  await service.check(HOSTILE.flatMap((ip) => times(7, () => login(ip))));
  await service.check(times(5, () => ({ attributes: { api_key: "k-secret-1" } })));
}

let browser;

export async function openBrowser() {
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
}

export const closeBrowser = () => browser?.close();

/// A page that notes what it should never do: errors, broken policies, and requests that leave the service.
export async function openPage(service, { width = 1440, height = 1000, dark = false, path = "/", token, context: more = {} } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: dark ? "dark" : "light", reducedMotion: "reduce", ...more });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  page.sins = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) page.sins.push(`${message.text()} ${message.location().url}`);
  });
  page.on("pageerror", (error) => page.sins.push(String(error)));
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(`${service.url}/`) && !url.startsWith("data:")) page.sins.push(`left the origin: ${url}`);
  });
  await page.goto(token ? `${service.page}#token=${token}` : service.page);
  if (path !== "/") await page.goto(service.url + path);
  return page;
}

/// Waits until the browser has noted a refused request, the only one, and forgets it.
export async function refusal(page, status) {
  while (page.sins.length === 0) await pause(10);
  if (page.sins.length > 1 || !page.sins[0].includes(String(status))) throw new Error(page.sins.join("\n"));
  page.sins.length = 0;
}

export async function picture(page, name, { fullPage = true } = {}) {
  await page.screenshot({ path: join(pictures, `${name}.png`), fullPage });
}

/// What an accessibility checker finds wrong.
export async function faults(page) {
  await page.evaluate(axeSource);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document));
  return violations.map(({ id, nodes }) => `${id}: ${nodes[0].target} and ${nodes.length - 1} more: ${nodes[0].failureSummary}`);
}
