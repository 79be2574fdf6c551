// What operators should know: settings that can be spoofed, proxies that are missing in trustedProxies, stores that cannot be reached.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { setImmediate, setTimeout as sleep } from "node:timers/promises";
import { Limiter, keyed } from "tollkeeper";
import { rateLimit } from "tollkeeper/express";
import { Postgres, Redis, folder, freePort, namespace, output } from "./world.mjs";

/** The warnings that are emitted while something runs. */
async function warnings(run) {
  const found = [];
  const listener = ({ name, code, message }) => found.push({ name, code, message });
  process.on("warning", listener);
  try {
    await run();
    // They are emitted in the next turn.
    await setImmediate();
  } finally {
    process.off("warning", listener);
  }
  return found;
}

const messages = async (run) => (await warnings(run)).map(({ message }) => message);

/** Asks a middleware as Node's server would. */
function ask(limited, remoteAddress, headers) {
  const request = { socket: { remoteAddress }, method: "GET", url: "/", rawHeaders: Object.entries(headers).flat() };
  const response = { setHeader() {}, end() {} };
  return new Promise((resolve, reject) => limited(request, response, (error) => (error ? reject(error) : resolve())));
}

test("a proxy that is not trusted is reported once", async () => {
  const limited = rateLimit("1000/min");
  const found = await warnings(async () => {
    for (let client = 0; client < 5; client++) await ask(limited, "10.0.0.1", { "X-Forwarded-For": `203.0.113.${client}` });
  });
  const message =
    "10.0.0.1 sends forwarding headers but is not in trusted_proxies, so `ip` is its own address for " +
    "all of its requests; add it if it is your proxy";
  assert.deepEqual(found, [{ name: "TollkeeperWarning", code: "TOLLKEEPER_PROXY", message }]);
});

test("a proxy is found later too", async () => {
  const limited = rateLimit("1,000,000/min");
  const found = await messages(async () => {
    for (let request = 0; request < 1000; request++) {
      await ask(limited, "10.0.0.1", request < 500 ? {} : { "X-Real-IP": "203.0.113.7" });
    }
  });
  assert.equal(found.length, 1);
});

test("nothing is reported where nothing is wrong", async () => {
  const found = await messages(async () => {
    await ask(rateLimit("1000/min"), "203.0.113.7", { accept: "*/*" });
    await ask(rateLimit("1000/min", { trustedProxies: ["10.0.0.0/8"] }), "10.0.0.1", { "x-forwarded-for": "203.0.113.7" });
    await ask(rateLimit("1000/min", { by: "header.x-api-key" }), "10.0.0.1", { "x-forwarded-for": "203.0.113.7" });
    // The application finds the address itself.
    await ask(rateLimit("1000/min", { address: () => "198.51.100.1" }), "10.0.0.1", { "x-forwarded-for": "203.0.113.7" });
  });
  assert.deepEqual(found, []);
});

test("headers that contradict each other are reported", async () => {
  const limited = rateLimit("1000/min", { trustedProxies: ["10.0.0.0/8"] });
  const [message, ...others] = await messages(async () => {
    for (let time = 0; time < 3; time++) await ask(limited, "10.0.0.1", { "x-forwarded-for": "203.0.113.7", forwarded: "for=6.6.6.6" });
  });
  assert.match(message, /sends Forwarded and X-Forwarded-For, and they differ/);
  assert.deepEqual(others, []);
});

test("settings that can be spoofed are warned of", async () => {
  for (const [settings, words] of [
    [{ trustedProxies: ["0.0.0.0/0"] }, /trusted_proxies\[0\]: trusts everybody/],
    [{ clientAddress: "x-real-ip" }, /client_address: x-real-ip is ignored, because trusted_proxies is empty/],
    [{ ipv6Prefix: 128 }, /ipv6_prefix: with 128 bits one subscriber/],
    [{ by: "header.x-forwarded-for" }, /`header.x-forwarded-for` is chosen by the client/],
  ]) {
    const [{ code, message }, ...others] = await warnings(() => void rateLimit("100/min", settings));
    assert.equal(code, "TOLLKEEPER_SETTING");
    assert.match(message, words);
    assert.deepEqual(others, []);
  }
});

// Limits on one Redis share a limiter, and only the rules of the first one were looked at.
test("rules that are added later are warned of, and settings only once", async () => {
  const settings = { store: "redis://127.0.0.1:1", namespace: "notices", ipv6Prefix: 128 };
  const first = await messages(() => void rateLimit("100/min", settings));
  const second = await messages(() => void rateLimit("5/min", { ...settings, by: "header.x-forwarded-for" }));
  assert.deepEqual([first.length, second.length], [1, 1]);
  assert.match(second[0], /`header.x-forwarded-for`/);
});

test("a file is warned of with its line", async () => {
  const path = join(folder(), "tollkeeper.yaml");
  writeFileSync(path, "rules:\n  - { name: a, key: '{header.user-agent}', limit: 1/s }\n");
  const [message] = await messages(() => Limiter.fromFile(path));
  assert.match(message, /tollkeeper.yaml:2:.*is the same for everyone who uses the same program/);
});

test("usual settings cause no warning", async () => {
  const found = await messages(() => {
    rateLimit("100/min burst 20", { by: "header.x-api-key|ip", trustedProxies: ["10.0.0.0/8", "127.0.0.1"] });
    Limiter.fromRules([{ name: "a", key: "{user_id}", limit: "1/s" }, "10/min by ip"]);
  });
  assert.deepEqual(found, []);
});

const HERE = new URL(".", import.meta.url).pathname;
const USER = { name: "per-user", key: "{user}", limit: "1000000/h" };

const requirePassword = ({ port }) => output("redis-cli", ["-p", `${port}`, "config", "set", "requirepass", "secret"]);

/** Asks for so long, and then until the answer comes from here. */
async function askUntil(limiter, source, atLeast = 0) {
  const end = Date.now() + atLeast;
  for (let attempt = 0; ; attempt++) {
    const verdict = await limiter.check({ user: "a" });
    if (verdict.source === source && Date.now() >= end) return;
    assert(attempt < 10_000, `no answer from ${source}`);
    await sleep(10);
  }
}

// Limits silently became those of each process: nothing was reported when Redis could not be reached.
test("an outage is reported, and not each of its requests", async (t) => {
  const redis = await Redis.start();
  t.after(() => redis.kill());
  await requirePassword(redis);
  const { port } = redis;
  const store = `redis://default:secret@127.0.0.1:${port}`;
  const limiter = Limiter.fromRules([USER], { store, namespace: namespace(), timeout: 0.5 });
  const before = await messages(() => askUntil(limiter, "store"));
  assert.deepEqual(before.filter((message) => message.includes(`:${port}`)), []);
  await redis.kill();
  const found = await warnings(() => askUntil(limiter, "local", 2000));
  const [first, ...more] = found.filter(({ message }) => message.includes(`:${port}`));
  assert.deepEqual([first.name, first.code], ["TollkeeperWarning", "TOLLKEEPER_STORE"]);
  assert(first.message.startsWith(`the store at 127.0.0.1:${port} does not answer`), first.message);
  assert(more.length <= 1 && more.every(({ message }) => message.startsWith(`cannot reach the store at 127.0.0.1:${port} yet: `)), JSON.stringify(more));
  assert(!JSON.stringify(found).includes("secret"));
  await redis.run();
  await requirePassword(redis);
  // That it answers again is no warning.
  const after = await messages(() => askUntil(limiter, "store"));
  assert.deepEqual(after.filter((message) => message.includes("again")), []);
});

// Every second another attempt fails.
test("a store that is unreachable at start is reported once a minute", async () => {
  const port = await freePort();
  const limiter = Limiter.fromRules([USER], { store: `redis://default:secret@127.0.0.1:${port}` });
  const found = (await messages(() => askUntil(limiter, "local", 2500))).filter((message) => message.includes(`:${port}`));
  assert.equal(found.length, 1, found.join("\n"));
  assert(found[0].startsWith(`cannot reach the store at redis://…@127.0.0.1:${port} yet: cannot connect: `), found[0]);
});

// A program that asks once ends with the answer: the warning has to come with it.
test("the first answer brings the warning", async () => {
  const body = `
    const { Limiter } = require("tollkeeper");
    const limiter = Limiter.fromRules(["1/s by user"], { store: "redis://127.0.0.1:${await freePort()}" });
    process.on("warning", ({ code }) => console.log(code));
    limiter.check({ user: "a" });`;
  const { stdout } = await output(process.execPath, ["-e", body], { cwd: HERE });
  assert.equal(stdout, "TOLLKEEPER_STORE\n");
});

// Answers that arrived with the warning were lost: those who waited for them did so forever.
test("an emitWarning that throws keeps no answer from anybody", async () => {
  const body = `
    const { Limiter } = require("tollkeeper");
    const limiter = Limiter.fromRules(["1/s by user"], { store: "redis://127.0.0.1:${await freePort()}" });
    process.emitWarning = () => { throw new Error("no warnings here"); };
    process.on("uncaughtException", (error) => console.log(error.message));
    limiter.check({ user: "a" }).then(({ source }) => console.log(source));`;
  const { stdout } = await output(process.execPath, ["-e", body], { cwd: HERE });
  assert.deepEqual(stdout.trim().split("\n").sort(), ["local", "no warnings here"]);
});

// The request that brought a notice failed, and one whose countWhen had failed ended the process.
test("an emitWarning that throws fails no request", async () => {
  const body = `
    const { createServer } = require("node:http");
    const { rateLimit } = require("tollkeeper/express");
    process.emitWarning = () => { throw new Error("no warnings here"); };
    process.on("uncaughtException", (error) => console.log(error.message));
    const limit = rateLimit("9/h", { countWhen: () => { throw new Error("a bug"); } });
    const server = createServer((request, response) => limit(request, response, (error) => response.writeHead(error ? 500 : 200).end()));
    server.listen(0, "127.0.0.1", async () => {
      const headers = { "x-forwarded-for": "203.0.113.7" };
      for (const _ of [1, 2]) console.log((await fetch(\`http://127.0.0.1:\${server.address().port}\`, { headers })).status);
      server.close();
      server.closeAllConnections();
    });`;
  const { stdout } = await output(process.execPath, ["-e", body], { cwd: HERE });
  assert.deepEqual(stdout.trim().split("\n").sort(), ["200", "200", "no warnings here", "no warnings here"]);
});

// The last good rules stay in force, so that nothing else tells that changes no longer arrive. Such a limiter asks no server.
test("rules that cannot be followed are reported, also where they were read synchronously", async (t) => {
  const postgres = await Postgres.start();
  let isRunning = true;
  t.after(() => isRunning && postgres.stop());
  await Limiter.fromPostgres(postgres.url);
  await postgres.sql("insert into rate_limit_rule (name, key_pattern, rate, period) values ('per-user', '{user}', 1000000, '1 hour')");
  const path = join(folder(), "tollkeeper.yaml");
  writeFileSync(path, `rules_from: ${postgres.url}\n`);
  const body = `
    const { Limiter } = require("tollkeeper");
    const limiter = Limiter.fromFileSync(${JSON.stringify(path)});
    process.on("warning", ({ code, message }) => {
      if (!message.includes("stays in force")) return;
      console.log(code);
      process.exit();
    });
    console.log("reads");
    setInterval(() => limiter.check({ user: "a" }), 20);`;
  const ended = output(process.execPath, ["-e", body], { cwd: HERE });
  await sleep(2000);
  isRunning = false;
  await postgres.stop();
  assert.equal((await ended).stdout, "reads\nTOLLKEEPER_STORE\n");
});

// A limiter that has no server has no outage to report.
test("in memory nothing is reported", async () => {
  const [limiter, quota] = [Limiter.fromRules([USER]), keyed("1000000/h")];
  const found = await messages(async () => {
    for (let request = 0; request < 100; request++) {
      assert((await limiter.check({ user: "a" })).allowed && limiter.tryCheck({ user: "a" }).allowed && quota.check("a").allowed);
    }
  });
  assert.deepEqual(found, []);
});
