// The Node package beside its peers, in one run on one machine: CPU time a request.
//
//   ./run bench_node
//
// Each limiter is in an Express application in a process of its own, asked by autocannon in this process. CPU time is that of the
// application, of all its threads, and of Redis. What Express costs alone is in the tables too.
import { fork, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import autocannon from "autocannon";
import Redis from "ioredis";
import { RateLimiterMemory } from "rate-limiter-flexible";
import { MemoryStore } from "express-rate-limit";
import { Limiter, keyed } from "tollkeeper";

const ROUNDS = Number(process.env.ROUNDS ?? 3);
const DURATION = Number(process.env.DURATION ?? 4);
const PLENTY = 1_000_000_000;

async function startRedis() {
  const listener = createServer().listen(0, "127.0.0.1");
  await once(listener, "listening");
  const { port } = listener.address();
  listener.close();
  const folder = mkdtempSync(join(tmpdir(), "tollkeeper-bench-"));
  const child = spawn("redis-server", ["--port", port, "--bind", "127.0.0.1", "--save", ""].map(String), { cwd: folder, stdio: "ignore" });
  for (;;) {
    const socket = connect(port, "127.0.0.1");
    const isUp = await Promise.race([once(socket, "connect").then(() => true), once(socket, "error").then(() => false)]).catch(() => false);
    socket.destroy();
    if (isUp) break;
    await sleep(50);
  }
  const client = new Redis(port, "127.0.0.1");
  const cpu = async () => {
    const text = await client.info("cpu");
    return ["used_cpu_user", "used_cpu_sys"].reduce((sum, name) => sum + Number(new RegExp(`${name}:([0-9.]+)`).exec(text)[1]), 0);
  };
  const stop = async () => {
    client.disconnect();
    child.kill();
    await once(child, "exit");
    rmSync(folder, { recursive: true, force: true });
  };
  return { url: `redis://127.0.0.1:${port}`, cpu, stop };
}

/** An application with a limiter, in a process of its own. */
async function start(limiter, { store, limit = PLENTY, lease = "" }) {
  const env = { ...process.env, LIMITER: limiter, STORE: store, LIMIT: limit, LEASE: lease };
  const app = fork(new URL("app.mjs", import.meta.url), { env });
  const [{ port }] = await once(app, "message");
  const cpu = async () => {
    app.send("cpu");
    const [{ cpu }] = await once(app, "message");
    return (cpu.user + cpu.system) / 1e6;
  };
  const stop = async () => {
    app.kill();
    await once(app, "exit");
  };
  return { url: `http://127.0.0.1:${port}/`, cpu, stop };
}

/**
 * Loads applications in turn, round by round, so that what else the machine does meets all of them: microseconds of CPU a request,
 * and requests a second, of each one's best round.
 */
async function measure(limiters, { users, redis, ...settings }) {
  const load = (url, duration) =>
    autocannon({ url, connections: 50, duration, requests: users.map((user) => ({ headers: { "x-user": user } })) });
  const apps = [];
  for (const [name, limiter, extra] of limiters) {
    const app = await start(limiter, { store: redis?.url ?? "memory:", ...settings, ...extra });
    apps.push({ name, app });
    // Until the code is compiled and, where somebody is to be denied, is.
    await load(app.url, 2);
  }
  for (let round = 0; round < ROUNDS; round++) {
    for (const entry of apps) {
      const { app } = entry;
      const [before, redisBefore] = [await app.cpu(), redis ? await redis.cpu() : 0];
      const { requests, latency, non2xx } = await load(app.url, DURATION);
      const used = (((await app.cpu()) - before) / requests.total) * 1e6;
      const served = redis ? (((await redis.cpu()) - redisBefore) / requests.total) * 1e6 : 0;
      const found = { app: used, redis: served, cpu: used + served, rate: requests.average, p99: latency.p99, denied: non2xx / requests.total };
      if (entry.best === undefined || found.cpu < entry.best.cpu) entry.best = found;
    }
  }
  for (const { app } of apps) await app.stop();
  return apps.map(({ name, best }) => ({ name, ...best }));
}

function table(title, text, header, rows) {
  console.log(`\n## ${title}\n\n${text}\n`);
  console.log(`| ${header.join(" | ")} |`);
  console.log(`|${header.map((_, index) => (index === 0 ? "---" : "---:")).join("|")}|`);
  for (const row of rows) console.log(`| ${row.join(" | ")} |`);
}

const us = (number) => `${number.toFixed(number < 10 ? 1 : 0)} µs`;
const USERS = Array.from({ length: 200 }, (_, index) => `user-${index}`);
const ALL = ["tollkeeper", "express-rate-limit", "rate-limiter-flexible", "express-rate-limit on TollkeeperStore"].map((name) => [name, name]);

async function inMemory() {
  const [bare, ...found] = await measure([["(Express alone)", "none"], ...ALL], { users: USERS });
  const rows = found.map(({ name, cpu, rate, p99 }) => [name, us(cpu), added(cpu - bare.cpu), `${Math.round(rate)}/s`, `${p99} ms`]);
  rows.unshift([bare.name, us(bare.cpu), "", `${Math.round(bare.rate)}/s`, `${bare.p99} ms`]);
  table("Express, in memory", "50 connections, 200 users, nobody is denied.", ["limiter", "CPU a request", "added", "requests", "p99"], rows);
}

const added = (cost) => `${cost < 0 ? "-" : "+"}${us(Math.abs(cost))}`;

async function onRedis(title, text, limiters, settings) {
  const redis = await startRedis();
  const [bare, ...found] = await measure(limiters, { redis, ...settings });
  await redis.stop();
  // What cannot be told from nothing counts as a microsecond.
  const limiting = ({ cpu }) => Math.max(cpu - bare.cpu, 1);
  const rows = found.map((entry) => {
    const { name, app, redis, cpu, rate, denied } = entry;
    if (settings.limit && denied < 0.9) throw new Error(`${name} denied only ${denied} of an attacker's requests`);
    const ratio = `${(limiting(entry) / limiting(found[0])).toFixed(1)}x`;
    return [name, us(app), us(redis), us(cpu), added(cpu - bare.cpu), ratio, `${Math.round(rate)}/s`];
  });
  rows.unshift([bare.name, us(bare.app), "", us(bare.app), "", "", `${Math.round(bare.rate)}/s`]);
  table(title, text, ["limiter", "CPU of the app", "CPU of Redis", "together", "added", "added, beside tollkeeper", "requests"], rows);
}

/** What a limiter costs by itself, without a server around it. */
async function alone() {
  const CALLS = 200_000;
  const keys = Array.from({ length: 1000 }, (_, index) => `client-${index}`);
  const best = async (run) => {
    let least = Infinity;
    for (let round = 0; round < 4; round++) {
      const before = process.cpuUsage();
      await run();
      const { user, system } = process.cpuUsage(before);
      least = Math.min(least, (user + system) / CALLS);
    }
    return least;
  };
  const each = (check) =>
    best(async () => {
      for (let index = 0; index < CALLS; index++) await check(keys[index % 1000]);
    });
  const ours = keyed("1,000,000/s");
  const rules = Limiter.fromRules([{ name: "bench", key: "{client}", limit: "1,000,000/s" }]);
  const flexible = new RateLimiterMemory({ points: PLENTY, duration: 60 });
  const store = new MemoryStore();
  store.init({ windowMs: 60_000 });
  const found = [
    ["tollkeeper `keyed(...).check(key)`", await best(() => { for (let index = 0; index < CALLS; index++) ours.check(keys[index % 1000]); })],
    ["tollkeeper `limiter.tryCheck({...})`", await best(() => { for (let index = 0; index < CALLS; index++) rules.tryCheck({ client: keys[index % 1000] }); })],
    ["tollkeeper `await limiter.check({...})`", await each((key) => rules.check({ client: key }))],
    ["rate-limiter-flexible `RateLimiterMemory`", await each((key) => flexible.consume(key))],
    ["express-rate-limit `MemoryStore`", await each((key) => store.increment(key))],
  ];
  store.shutdown();
  table("One key, in memory, without a server", "A loop over 1,000 keys.", ["call", "CPU a call"], found.map(([name, cost]) => [name, `${Math.round(cost * 1000)} ns`]));
}

const parts = {
  alone,
  memory: inMemory,
  redis: () =>
    onRedis("Express, on Redis", "50 connections, 200 users, nobody is denied.", [["(Express alone)", "none"], ...ALL], { users: USERS }),
  attacker: () =>
    onRedis(
      "A denied attacker, on Redis",
      "50 connections of one user who has used up a limit of 100 a day.",
      [["(Express, 429 to everybody)", "deny"], ...ALL, ["rate-limiter-flexible, `inMemoryBlockOnConsumed`", "rate-limiter-flexible that blocks"]],
      { users: ["attacker"], limit: 100 },
    ),
  hot: () =>
    onRedis(
      "A hot key, on Redis",
      "50 connections of one user, nobody is denied. With `lease: auto` tokens are taken ahead of use.",
      [
        ["(Express alone)", "none"],
        ["tollkeeper, `lease: auto`", "tollkeeper", { lease: "auto" }],
        ["tollkeeper", "tollkeeper"],
        ["express-rate-limit", "express-rate-limit"],
        ["rate-limiter-flexible", "rate-limiter-flexible"],
      ],
      { users: ["hot"] },
    ),
};
for (const name of process.argv.length > 2 ? process.argv.slice(2) : Object.keys(parts)) await parts[name]();
process.exit(0);
