// What TypeScript has to accept, and what it has to refuse. Compiled by examples.test.mjs, never run.
import { serve } from "@hono/node-server";
import express, { type Request } from "express";
import { rateLimit as expressRateLimit } from "express-rate-limit";
import Fastify from "fastify";
import { Hono } from "hono";
import { type Annotation, ConfigError, type KeyException, Limiter, ManualClock, OverloadedError, Quota, type RuleDecision, type Verdict, keyed } from "tollkeeper";
import { rateLimit, verdictOf } from "tollkeeper/express";
import { TollkeeperStore } from "tollkeeper/express-rate-limit";
import { limited, rateLimit as fastifyPlugin } from "tollkeeper/fastify";
import { rateLimit as hono } from "tollkeeper/hono";
import { rateLimit as koa } from "tollkeeper/koa";
import { RateLimit, RateLimitGuard, SkipRateLimit } from "tollkeeper/nestjs";

const app = express();
app.use(rateLimit("100/min burst 20"));
app.post("/login", rateLimit("5/min", { by: (request: Request) => request.get("x-user") }), (request, response) => {
  const verdict: Verdict | undefined = verdictOf(request);
  response.json(verdict?.rules);
});
app.use(rateLimit([Quota.perSecond(2), "100/day"], { by: async (request) => ({ id: request.ip }), onDenied: (request, response) => response.end() }));
app.use(expressRateLimit({ limit: 5, store: new TollkeeperStore({ store: "memory:" }) }));
app.post("/in", rateLimit("5/min", { countWhen: (request: Request, response) => request.ip !== undefined && response.statusCode === 401 }));
app.use(rateLimit({ limit: "5/min", countWhen: async (request, response) => response.statusCode >= 400 }));
// @ts-expect-error: not an option
rateLimit("1/s", { windowMs: 1 });
// @ts-expect-error: whether it counts, not which ones
rateLimit("1/s", { countWhen: "failed" });
// @ts-expect-error: one of a few styles
rateLimit("1/s", { headers: "draft-1" });

const fastify = Fastify();
await fastify.register(fastifyPlugin, { limit: "100/min", by: (request) => request.ip });
fastify.get("/", { config: { rateLimit: "5/min" } }, async () => "home");
await fastify.register(fastifyPlugin, { limiter: Limiter.fromRules(["1/s by tenant"]), attributes: async ({ headers }) => ({ tenant: headers.host }) });
fastify.get("/search", { config: { rateLimit: { limit: "5/min", by: "query.q" } }, onRequest: limited("1/s") }, async () => "found");

// The hook had its limiter, of which only its type knew nothing: a count of a route could not be reset.
const search = limited("5/min", { name: "search" });
fastify.get("/find", { onRequest: search }, async () => (await search.limiter.reset("search", "198.51.100.7")) ? "found" : "nothing");
const named: readonly { name: string }[] = limited({ limiter: Limiter.fromRules(["1/s by ip"]) }).limiter.rules;
// @ts-expect-error: rules are replaced in the limiter, which stays
search.limiter = Limiter.fromRules([]);
fastify.post("/in", { onRequest: limited("5/min", { countWhen: (request, reply) => reply.statusCode === 401 }) }, async () => "in");
koa<{ status: number }>("5/min", { countWhen: (context) => context.status === 401 });
hono("5/min", { countWhen: (context) => context.res.status === 401 });
new RateLimitGuard("5/min", { countWhen: (request, response) => response.statusCode === 401 });

const middleware: (context: object, next: () => Promise<unknown>) => Promise<unknown> = koa("100/min");
const honest = new Hono().use(hono("100/min", { by: (context) => context.req.header("x-user") }));
serve({ fetch: honest.fetch });

class Account {
  @RateLimit("5/min")
  login(): void {}
  @SkipRateLimit()
  health(): void {}
}
new Account().login();
new RateLimitGuard({ limiter: Limiter.fromRules(["1/s by ip"]) });
app.use(rateLimit({ limiter: Limiter.fromRules(["1/s by tenant"]), attributes: (request: Request) => ({ tenant: request.get("x-tenant") }) }));
// @ts-expect-error: what rules need, of which a limit has none
rateLimit("1/s", { attributes: () => ({}) });

const clock = new ManualClock();
const limiter: Limiter = await Limiter.fromFile("tollkeeper.yaml", { store: "redis://127.0.0.1:6379", clock });
const verdict = await limiter.check({ user_id: 42, admin: false, tenant: undefined }, { cost: 2 });
const wait: number | null = verdict.retryAfter;
const rows: RuleDecision[] = verdict.rules;
const over: Annotation[] = verdict.annotations;
const overBy: number | undefined = over[0]?.overBy;
const sync: boolean = limiter.tryCheck({ user_id: "42" }).allowed;
const remaining: number = keyed("10/s burst 20", { clock }).check("key").remaining;
const reservation = await limiter.reserve({ user_id: "42" }, { cost: 10, hold: 5 });
const refunded: number | undefined = (await reservation.settle(3))[0]?.refunded;
const permit = await limiter.acquire({ user_id: "42" });
permit.release();
const many: Verdict[] = await limiter.checkMany([{ user_id: "1" }, [{ user_id: "2" }, { cost: 5, rules: ["login"] }]], { rules: ["all"] });
const made: KeyException = await limiter.grant("per-user", "42", "1000/min", { burst: 200, until: new Date(), madeBy: "ada" });
const lifted: KeyException | null = await limiter.lift("*", "42", { by: "ip" });
await limiter.block("*", "42", { duration: "1h" });
const kinds: ("block" | "allow" | "grant" | null)[] = verdict.rules.map(({ exception }) => exception);
const version: number | undefined = (await Limiter.fromPostgres("postgres://db/limits", { snapshot: "rules" })).rulesStatus?.version;
// @ts-expect-error: a number could be seconds or milliseconds
limiter.block("*", "42", { until: 1_700_000_000 });
// @ts-expect-error: a grant has a limit
limiter.grant("per-user", "42", { burst: 200 });
console.log(middleware, wait, rows, overBy, sync, remaining, refunded, many, made.since.getTime(), lifted, kinds, version, named);
// @ts-expect-error: it is made by fromRules or fromFile
new Limiter();
// @ts-expect-error: a cost is a number
limiter.check({}, { cost: "1" });
try {
  limiter.replaceRules([{ name: "a", key: "{ip}", limit: "1/s" }, "5/min by user"]);
} catch (error) {
  if (error instanceof ConfigError) console.log(error.code.toUpperCase());
  if (error instanceof OverloadedError) console.log(error.verdicts?.[0]?.allowed);
}
