// The Node package beside its peers, in one run on one machine: CPU time a request, and a call.
//
//   ./run bench_node
//
// Each limiter is in a process of its own: in an Express application that is asked by autocannon in this process, in one that is
// given requests without a network, and called without Express. CPU time is that of the process, of all its threads, and of Redis.
// All take turns in many short rounds of as many requests, each round in another order, so that what else the machine does meets all of
// them alike. The tables have the median of the rounds and, in parentheses, its 95% confidence interval. What a limiter adds is the
// difference to the application without one in the same round: where the intervals of two limiters overlap, this run does not rank them.
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

const ROUNDS = Number(process.env.ROUNDS ?? 40);
/** Every process is started so many times: two of the same application differ by more than a limiter costs, from start to exit. */
const STARTS = 5;
/** Before them, until the code is compiled. */
const WARM_UP = 10;
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

/** A process with a limiter. */
async function start(file, limiter, { store, users, limit = PLENTY, lease = "" }) {
  const env = { ...process.env, LIMITER: limiter, STORE: store, LIMIT: limit, LEASE: lease, USERS: users.join(",") };
  const child = fork(new URL(file, import.meta.url), { env });
  const [{ port }] = await once(child, "message");
  const ask = async (message) => {
    child.send(message);
    return (await once(child, "message"))[0];
  };
  const stop = async () => {
    child.kill();
    await once(child, "exit");
  };
  return { port, ask, stop };
}

/** An Express application that is asked so many times in a round, over HTTP on 50 connections. */
function startApps(amount) {
  return async (limiter, settings) => {
    const { port, ask, stop } = await start("app.mjs", limiter, settings);
    const requests = settings.users.map((user) => ({ headers: { "x-user": user } }));
    const load = async () => {
      const { cpu: before } = await ask("cpu");
      // It ends at a sample, which by default is a second apart.
      const { requests: made, non2xx } = await autocannon({ url: `http://127.0.0.1:${port}/`, connections: 50, amount, requests, sampleInt: 50 });
      const { cpu: after } = await ask("cpu");
      return { calls: made.total, denied: non2xx, cpu: after.user + after.system - before.user - before.system };
    };
    return { load, stop };
  };
}

/** A process in which 50 callers together make so many calls in a round. */
function startCallers(file, requests) {
  return async (limiter, settings) => {
    const { ask, stop } = await start(file, limiter, settings);
    const load = async () => {
      const { calls, denied, cpu } = await ask({ requests });
      return { calls, denied, cpu: cpu.user + cpu.system };
    };
    return { load, stop };
  };
}

const startApp = startApps(1_500);
/** An Express application without a network. */
const startInside = startCallers("inside.mjs", 2_000);
/** A limiter without Express. */
const startCaller = startCallers("caller.mjs", 8_000);

/** Loads the processes in turn, round by round: what was found in each round, and what is added to the first process. */
async function measure(startOne, limiters, { redis, staysHot = false, ...settings }) {
  const all = limiters.map(([name]) => ({ name, rounds: [] }));
  for (let start = 0; start < STARTS; start++) {
    const running = [];
    for (const [, limiter, extra] of limiters) {
      const one = await startOne(limiter, { store: redis?.url ?? "memory:", ...settings, ...extra });
      // Also until who is to be denied is.
      for (let time = 0; time < WARM_UP; time++) await one.load();
      running.push(one);
    }
    for (let round = 0; round < ROUNDS / STARTS; round++) {
      for (let turn = 0; turn < all.length; turn++) {
        const which = (start + round + turn) % all.length;
        all[which].rounds.push(await taken(running[which], redis, staysHot));
      }
    }
    for (const { stop } of running) await stop();
  }
  return all.map(({ name, rounds }) => {
    const found = { name, added: spread(rounds.map(({ cpu }, round) => cpu - all[0].rounds[round].cpu)) };
    for (const figure of ["app", "redis", "cpu", "rate", "denied"]) found[figure] = spread(rounds.map((round) => round[figure]));
    return found;
  });
}

/** What a turn of one process took. */
async function taken(one, redis, staysHot) {
  // While others had their turns its key was idle for longer than leases are kept. That is not counted: a hot key is never idle.
  if (staysHot) await one.load();
  const before = redis ? await redis.cpu() : 0;
  const began = performance.now();
  const { calls, denied, cpu } = await one.load();
  const rate = (calls / (performance.now() - began)) * 1000;
  const served = redis ? ((await redis.cpu()) - before) * 1e6 : 0;
  return { app: cpu / calls, redis: served / calls, cpu: (cpu + served) / calls, rate, denied: denied / calls };
}

/** The median and its 95% confidence interval: half of the numbers are below it, give or take two standard deviations. */
function spread(numbers) {
  const sorted = [...numbers].sort((one, other) => one - other);
  const middle = (sorted.length - 1) / 2;
  const off = 0.98 * Math.sqrt(sorted.length);
  const low = sorted[Math.max(0, Math.floor(middle - off))];
  const high = sorted[Math.min(sorted.length - 1, Math.ceil(middle + off))];
  return { low, median: sorted[Math.floor(middle)], high };
}

function table(title, text, header, rows) {
  console.log(`\n## ${title}\n\n${text}\n`);
  console.log(`| ${header.join(" | ")} |`);
  console.log(`|${header.map((_, index) => (index === 0 ? "---" : "---:")).join("|")}|`);
  for (const row of rows) console.log(`| ${row.join(" | ")} |`);
}

const number = (us) => us.toFixed(Math.abs(us) < 10 ? 1 : 0).replace(/^-(0\.0)$/, "$1");
const signed = (us) => `${us < 0 ? "" : "+"}${number(us)}`;
const cost = ({ low, median, high }) => `${number(median)} µs (${number(low)} to ${number(high)})`;
const added = ({ low, median, high }) => `${signed(median)} µs (${signed(low)} to ${signed(high)})`;
/** What a limiter adds, in terms of what Tollkeeper adds. Where that may be nothing, only the ends of the intervals can be compared. */
const beside = (other, ours) => {
  if (ours.low > 0) return `${(other.median / ours.median).toFixed(1)}x`;
  return ours.high > 0 && other.low > ours.high ? `over ${Math.floor(other.low / ours.high)}x` : "";
};
const perSecond = ({ median }) => `${Math.round(median)}/s`;
const USERS = Array.from({ length: 200 }, (_, index) => `user-${index}`);
const NONE = ["(Express alone)", "none"];
const CALLED = ["tollkeeper", "express-rate-limit", "rate-limiter-flexible"].map((name) => [name, name]);
const ALL = [...CALLED, ["express-rate-limit on TollkeeperStore", "express-rate-limit on TollkeeperStore"]];
const BLOCKING = ["rate-limiter-flexible, `inMemoryBlockOnConsumed`", "rate-limiter-flexible that blocks"];
const LEASING = [["tollkeeper, `lease: auto`", "tollkeeper", { lease: "auto" }], ...CALLED];

async function inMemory(startOne, title, text) {
  const [bare, ...found] = await measure(startOne, [NONE, ...ALL], { users: USERS });
  const rows = found.map(({ name, cpu, added: more, rate }) => [name, cost(cpu), added(more), perSecond(rate)]);
  rows.unshift([bare.name, cost(bare.cpu), "", perSecond(bare.rate)]);
  table(title, text, ["limiter", "CPU a request", "added", "requests"], rows);
}

async function onRedis(startOne, title, text, limiters, settings) {
  const redis = await startRedis();
  const [bare, ...found] = await measure(startOne, limiters, { redis, ...settings });
  await redis.stop();
  const rows = found.map((entry) => {
    const { name, app, redis, cpu, rate, denied } = entry;
    if (settings.limit && denied.low < 0.9) throw new Error(`${name} denied only ${denied.low} of an attacker's requests`);
    return [name, cost(app), cost(redis), cost(cpu), added(entry.added), beside(entry.added, found[0].added), perSecond(rate)];
  });
  rows.unshift([bare.name, cost(bare.app), "", cost(bare.app), "", "", perSecond(bare.rate)]);
  const [process, what] = startOne === startCaller ? ["the process", "calls"] : ["the app", "requests"];
  table(title, text, ["limiter", `CPU of ${process}`, "CPU of Redis", "together", "added", "added, beside tollkeeper", what], rows);
}

/** What a limiter costs by itself, without a server around it. */
async function alone() {
  const CALLS = 200_000;
  const keys = Array.from({ length: 1000 }, (_, index) => `client-${index}`);
  const best = async (run) => {
    let least = Infinity;
    for (let round = 0; round < 8; round++) {
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
  table("One key, in memory, without a server", "A loop over 1,000 keys; the best of 8.", ["call", "CPU a call"], found.map(([name, cost]) => [name, `${Math.round(cost * 1000)} ns`]));
}

const ATTACKER = { users: ["attacker"], limit: 100 };
const HOT = { users: ["hot"], staysHot: true };
const STAYS_HOT = "Each turn starts with as many requests that are not counted, so that the key is hot.";
const LOOP = ["(the loop alone)", "none"];
const CALLERS_TEXT = "50 callers without a network, 200 users, nobody is denied.";
const parts = {
  alone,
  memory: () => inMemory(startInside, "Express, in memory", CALLERS_TEXT),
  redis: () => onRedis(startInside, "Express, on Redis", CALLERS_TEXT, [NONE, ...ALL], { users: USERS }),
  attacker: () =>
    onRedis(
      startInside,
      "A denied attacker, in Express, on Redis",
      "50 callers without a network, one user who has used up a limit of 100 a day.",
      [["(Express, 429 to everybody)", "deny"], ...ALL, BLOCKING],
      ATTACKER,
    ),
  hot: () =>
    onRedis(
      startInside,
      "A hot key, in Express, on Redis",
      `50 callers without a network, one user, nobody is denied. With \`lease: auto\`, tokens are leased in advance. ${STAYS_HOT}`,
      [NONE, ...LEASING],
      HOT,
    ),
  calls: () => onRedis(startCaller, "A call, on Redis", "50 callers, 200 users, nobody is denied.", [LOOP, ...CALLED], { users: USERS }),
  denials: () => onRedis(startCaller, "A call for a denied attacker, on Redis", "50 callers for one user.", [LOOP, ...CALLED, BLOCKING], ATTACKER),
  leases: () => onRedis(startCaller, "A call for a hot key, on Redis", `50 callers for one user, nobody is denied. ${STAYS_HOT}`, [LOOP, ...LEASING], HOT),
  "http-memory": () => inMemory(startApp, "Express over HTTP, in memory", "autocannon on 50 connections, 200 users, nobody is denied."),
  "http-redis": () =>
    onRedis(startApp, "Express over HTTP, on Redis", "autocannon on 50 connections, 200 users, nobody is denied.", [NONE, ...ALL], { users: USERS }),
};
for (const name of process.argv.length > 2 ? process.argv.slice(2) : Object.keys(parts)) await parts[name]();
process.exit(0);
