// What the migration tables and the advice of the pages say to write does what they say.
import "reflect-metadata";
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { request } from "node:http";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Controller, Get, Module } from "@nestjs/common";
import { APP_GUARD, NestFactory } from "@nestjs/core";
import cors from "cors";
import express from "express";
import Fastify from "fastify";
import { Limiter, keyed } from "tollkeeper";
import { rateLimit, verdictOf } from "tollkeeper/express";
import { rateLimit as fastifyPlugin } from "tollkeeper/fastify";
import { RateLimit, RateLimitGuard, SkipRateLimit } from "tollkeeper/nestjs";
import { ROOT, Redis, folder, namespace, serving, statuses } from "./world.mjs";

let redis;
before(async () => (redis = await Redis.start()));
after(() => redis.kill());

const page = (name) => readFileSync(join(ROOT, "docs", name), "utf8");

/** JavaScript with these names in it. */
const run = (code, names) => new Function(...Object.keys(names), `return (${code});`)(...Object.values(names));

/** The right column of a migration table: a test has to run all of it. */
class Table {
  constructor(name, title) {
    const text = page(name);
    const section = text.slice(text.indexOf(`# ${title}\n`)).split(/\n#+ /)[0];
    const cells = [...section.matchAll(/^\| (.*) \|$/gm)].slice(1).map(([, row]) => row.split(/(?<!\\)\| /).at(-1));
    this.left = new Set(cells.flatMap((cell) => [...cell.matchAll(/`([^`]+)`/g)].map(([, code]) => code.replaceAll("\\|", "|"))));
  }

  says(code) {
    assert(this.left.delete(code), `the table no longer says ${code}; it says ${[...this.left].join(", ")}`);
    return code;
  }

  /** What an expression is; three dots in it stand for `dots`. */
  value(code, names = {}, dots = "true") {
    return run(this.#completed(code, dots), names);
  }

  /** Options, as an object. */
  options(code, dots = "true") {
    return run(`{ ${this.#completed(code, dots)} }`, {});
  }

  #completed(code, dots) {
    return this.says(code).replace('"redis://..."', `"${redis.url}", timeout: 5, namespace: "${namespace()}"`).replaceAll("...", dots);
  }

  /** These stand for options that other lines of the table show. */
  isDone(...names) {
    assert.deepEqual([...this.left].sort(), names.sort());
  }
}

/** The statuses of requests to an application of Express that is limited by this. */
async function limited(limit, count, { answer = 200, ...options } = {}) {
  const app = express();
  app.use(limit);
  app.use((request, response) => response.status(answer).send("ok"));
  return serving(() => app.listen(0, "127.0.0.1"), (url) => statuses(url, count, options));
}

test("from express-rate-limit", async () => {
  const table = new Table("howto/from-express-rate-limit.md", "Replace the middleware");
  const hundred = table.value('rateLimit("100/min")', { rateLimit });
  assert.equal(hundred.limiter.rules[0].limit, "100/min");
  assert.deepEqual(await limited(hundred, 1), [200]);
  assert.equal(rateLimit(table.value('"100/min algorithm fixed_window"')).limiter.rules[0].algorithm, "fixed_window");
  const by = table.options("by: (req) => ...", "req.url");
  assert.deepEqual(await limited(rateLimit("1/min", by), 2), [200, 429]);
  const key = table.value('"header.x-api-key|ip"');
  assert.deepEqual(await limited(rateLimit("1/min", { by: key }), 2, { headers: { "x-api-key": "a" } }), [200, 429]);
  assert.deepEqual(await limited(rateLimit("1/min", table.options("exempt: (req) => ...")), 3), [200, 200, 200]);
  assert(table.value('["/healthz", "/static/*"]').every((path) => rateLimit("1/min", { exempt: [path] })));
  const middleware = rateLimit("1/min", { name: "login" });
  const names = { middleware, name: "login", key: "127.0.0.1" };
  assert.deepEqual(await limited(middleware, 2), [200, 429]);
  assert.equal((await run(`middleware.limiter.${table.says("inspect(name, key)")}`, names))[0].remaining, 0);
  assert.equal(await table.value("middleware.limiter.reset(name, key)", names), true);
  assert.deepEqual(await limited(middleware, 1), [200]);
  const onDenied = table.options("onDenied: (req, res, verdict) => ...", 'res.send("slow down")');
  assert.deepEqual(await limited(rateLimit("1/min", onDenied), 2), [200, 429]);
  assert.deepEqual(await limited(rateLimit("1/min", { [table.says("denyStatus")]: 503 }), 2), [200, 503]);
  for (const style of [table.options('headers: "draft-07"').headers, table.value('"draft-06"'), table.value('"x-ratelimit-epoch"')]) {
    assert.deepEqual(await limited(rateLimit("1/min", { headers: style }), 2), [200, 429]);
  }
  for (const [code, failed, passed] of [
    ["countWhen: (req, res) => res.statusCode >= 400", [401, 429], [200, 200]],
    ["countWhen: (req, res) => res.statusCode < 400", [401, 401], [200, 429]],
    ["countWhen: (req, res) => ...", [401, 429], [200, 429]],
  ]) {
    const options = table.options(code);
    assert.deepEqual(await limited(rateLimit("1/min", options), 2, { answer: 401 }), failed, code);
    assert.deepEqual(await limited(rateLimit("1/min", options), 2), passed, code);
  }
  const onRedis = table.options('store: "redis://..."');
  assert.deepEqual(await limited(rateLimit("1/min", onRedis), 2), [200, 429]);
  rateLimit("1/min", table.options("ipv6Prefix: 56"));
  const remaining = table.says("verdictOf(req).rules[0].remaining");
  const app = express();
  app.get("/", rateLimit("9/min"), (req, res) => res.json(run(remaining, { verdictOf, req })));
  await serving(() => app.listen(0, "127.0.0.1"), async (url) => assert.equal(await (await fetch(url)).json(), 8));
  table.isDone("attributes", "deny", "on_store_failure", "open", "closed", "local", "trustedProxies");
});

test("from rate-limiter-flexible", async () => {
  const table = new Table("guide/node.md", "Migrating from rate-limiter-flexible");
  const key = "a";
  assert.equal(table.value('keyed("10/s algorithm fixed_window").check(key)', { keyed, key }).remaining, 9);
  const limiter = table.value('Limiter.fromRules(["10/s by key algorithm fixed_window"], { store: "redis://..." })', { Limiter });
  const rule = limiter.rules[0].name;
  assert.equal((await run(table.says("await limiter.check({ key })").replace("await ", ""), { limiter, key })).source, "store");
  assert.equal((await run(`limiter.${table.says("check({ key }, { cost: 3 })")}`, { limiter, key })).rules[0].remaining, 6);
  assert.equal((await table.value("limiter.inspect(rule, key)", { limiter, rule, key }))[0].remaining, 6);
  assert.equal(await table.value("limiter.reset(rule, key)", { limiter, rule, key }), true);
  assert.equal((await table.value('limiter.block(rule, key, { duration: "1h" })', { limiter, rule, key })).kind, "block");
  const denied = await limiter.check({ key });
  assert.equal(`allowed: ${denied.allowed}`, table.says("allowed: false"));
  assert(denied[table.says("retryAfter")] > 3500 && denied.rules[0][table.says("remaining")] === 0);
  assert.equal((await table.value("limiter.allow(rule, key)", { limiter, rule, key })).kind, "allow");
  assert.equal((await table.value("limiter.block(rule, key)", { limiter, rule, key: "b" })).kind, "block");
  const { when } = table.options('when: { ip: "!10.0.0.0/8" }');
  const others = Limiter.fromRules([{ name: "others", when, key: "{ip}", limit: "1/min" }]);
  assert.deepEqual(["10.0.0.1", "192.0.2.1"].map((ip) => others.tryCheck({ ip }).rules.length), [0, 1]);
  const paced = Limiter.fromRules([`10/s burst 5 by key ${table.says("algorithm leaky_bucket")}`]);
  assert(paced.tryCheck({ key })[table.says("delay")] === 0 && paced.tryCheck({ key }).delay > 0);
  const reservation = await limiter[table.says("reserve")]({ key: "c" }, { cost: 2 });
  assert.equal((await reservation[table.says("settle")](1))[0].refunded, 1);
  limiter.close();
  table.isDone("burst", "on_store_failure: local");
});

test("from @fastify/rate-limit", async () => {
  const table = new Table("guide/node.md", "Migrating from @fastify/rate-limit");
  const app = Fastify();
  await table.value('app.register(rateLimit, { limit: "100/min" })', { app, rateLimit: fastifyPlugin });
  const { rateLimit: short } = table.options('config: { rateLimit: "5/min" }').config;
  const long = table.value('{ limit: "5/min", ... }', {}, "by: () => 1");
  const { onDenied } = table.options("onDenied: (request, reply, verdict) => ({ ... })", "slow: verdict.limiting");
  const onRedis = table.options('store: "redis://..."');
  const each = { short, long, denied: { limit: "5/min", name: "denied", onDenied }, redis: { limit: "5/min", ...onRedis } };
  for (const [name, config] of Object.entries(each)) app.get(`/${name}`, { config: { rateLimit: config } }, async () => "ok");
  for (const name of Object.keys(each)) {
    const found = [];
    for (let index = 0; index < 6; index++) found.push((await app.inject(`/${name}`)).statusCode);
    assert.deepEqual(found, [200, 200, 200, 200, 200, 429], name);
  }
  assert.deepEqual((await app.inject("/denied")).json(), { slow: "denied" });
  await app.close();
  table.isDone("attributes", "by", "closed", "exempt", "limit", "local", "namespace", "on_store_failure", "open");
});

test("from @nestjs/throttler", async () => {
  const table = new Table("guide/node.md", "Migrating from @nestjs/throttler");
  class Home {
    home() {
      return "home";
    }
    open() {
      return "open";
    }
  }
  const decorate = (name, ...decorators) => {
    for (const decorator of decorators) decorator(Home.prototype, name, Object.getOwnPropertyDescriptor(Home.prototype, name));
  };
  decorate("home", Get("/"), run(table.says('@RateLimit("3/min")').slice(1), { RateLimit }));
  decorate("open", Get("/open"), run(table.says("@SkipRateLimit()").slice(1), { SkipRateLimit }));
  Controller()(Home);
  const inModule = table.value('{ provide: APP_GUARD, useValue: new RateLimitGuard("10/min") }', { APP_GUARD, RateLimitGuard });
  new RateLimitGuard("10/min", table.value('{ store: "redis://..." }')).limiter.close();
  const global = table.says('app.useGlobalGuards(new RateLimitGuard("10/min"))');
  for (const providers of [[inModule], []]) {
    class App {}
    Module({ controllers: [Home], providers })(App);
    const app = await NestFactory.create(App, { logger: false });
    if (providers.length === 0) run(global, { app, RateLimitGuard });
    await app.listen(0, "127.0.0.1");
    await serving(() => app.getHttpServer(), async (url) => {
      assert.deepEqual(await statuses(`${url}/open`, 11), Array(11).fill(200));
      const policy = (await fetch(url)).headers.get("ratelimit-policy");
      assert.match(policy, /;q=10;w=60,"Home.home";q=3;w=60$/);
    });
  }
  table.isDone("by");
});

test("with CORS preflight requests do not count, and scripts can read a 429", async () => {
  const [, options] = /put `cors\(\)` before the limit.*\(`(exposedHeaders: .*?)`\)/.exec(page("howto/express.md"));
  const app = express();
  app.use(cors(run(`{ ${options} }`, {})), rateLimit("1/min"));
  app.get("/", (request, response) => response.send("home"));
  await serving(() => app.listen(0, "127.0.0.1"), async (url) => {
    const preflight = { method: "OPTIONS", headers: { origin: "https://example.org", "access-control-request-method": "GET" } };
    assert.deepEqual(await statuses(url, 3, preflight), [204, 204, 204]);
    assert.deepEqual(await statuses(url, 1), [200]);
    const denied = await fetch(url);
    assert.equal(denied.status, 429);
    assert.equal(denied.headers.get("access-control-allow-origin"), "*");
    assert.equal(denied.headers.get("access-control-expose-headers"), "Retry-After");
  });
});

test("behind a proxy on a Unix socket clients are limited by their own addresses", async () => {
  const [, options] = /`(address: \(request\) => .*?)`/.exec(page("guide/node.md"));
  const app = express();
  app.use(rateLimit("1/min", run(`{ ${options} }`, {})));
  app.get("/", (request, response) => response.send("home"));
  const socketPath = join(folder(), "socket");
  const server = app.listen(socketPath);
  const ask = (client) =>
    new Promise((resolve) => request({ socketPath, headers: { "x-forwarded-for": client } }, (response) => resolve(response.resume().statusCode)).end());
  const found = [];
  for (const client of ["1.1.1.1", "1.1.1.1", "2.2.2.2"]) found.push(await ask(client));
  server.close();
  assert.deepEqual(found, [200, 429, 200]);
});
