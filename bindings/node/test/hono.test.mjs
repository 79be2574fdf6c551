import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { rateLimit, verdictOf } from "tollkeeper/hono";
import { conforms } from "./web.mjs";
import { serving } from "./world.mjs";

conforms("Hono", ({ all, login, slow }) => {
  const app = new Hono();
  if (all) app.use(rateLimit(...all));
  app.get("/", (context) => context.text("home"));
  app.post("/login", ...(login ? [rateLimit(...login)] : []), (context) => context.text("in"));
  app.get("/slow", async (context) => {
    await slow;
    return context.text("slow");
  });
  app.onError((error, context) => context.text(error.message, 500));
  return serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" });
});

test("Hono: a server that tells no address, and a function that does", async () => {
  const app = new Hono();
  app.use("/by-address", rateLimit("1/min"));
  app.use("/by-function", rateLimit("1/min", { address: (context) => context.req.header("x-real-ip") }));
  app.get("/*", (context) => context.text(verdictOf(context).rules[0].key));
  app.onError((error, context) => context.text(error.code, 500));
  assert.equal(await (await app.request("/by-address")).text(), "ERR_TOLLKEEPER_ADDRESS");
  const from = { headers: { "x-real-ip": "192.0.2.1" } };
  assert.equal(await (await app.request("/by-function", from)).text(), "192.0.2.1");
  assert.equal((await app.request("/by-function", from)).status, 429);
  const deno = { remoteAddr: { hostname: "192.0.2.7" } };
  assert.equal(await (await app.request("/by-address", {}, deno)).text(), "192.0.2.7");
  const bun = { requestIP: () => ({ address: "192.0.2.8" }) };
  assert.equal(await (await app.request("/by-address", {}, bun)).text(), "192.0.2.8");
});

// Responses that are not made by the context had the status 200, and neither `retry-after` nor limit headers.
test("Hono: a denial in a response of its own", async () => {
  const app = new Hono();
  const own = { by: "global", name: "own", onDenied: (context, verdict) => new Response(`wait ${verdict.retryAfter > 0}`, { headers: { ratelimit: "mine" } }) };
  app.use("/own", rateLimit("1/min", own));
  app.use("/busy", rateLimit("1/min", { ...own, name: "busy", onDenied: () => Response.json({}, { status: 503, headers: { "retry-after": "7" } }) }));
  app.get("/*", (context) => context.text("home"));
  await app.request("/own");
  const denied = await app.request("/own");
  assert.deepEqual([denied.status, await denied.text(), denied.headers.get("ratelimit")], [429, "wait true", "mine"]);
  assert(denied.headers.get("retry-after") > 0 && denied.headers.get("ratelimit-policy"));
  await app.request("/busy");
  const busy = await app.request("/busy");
  assert.deepEqual([busy.status, busy.headers.get("retry-after"), busy.headers.get("content-type")], [503, "7", "application/json"]);
});

// It was 200 without `retry-after`, because Node's server for Hono has a class of responses of its own.
test("Hono: a denial made by Response.json, and one that was fetched", async () => {
  const app = new Hono();
  const word = serve({ fetch: () => new Response("slow down"), port: 0, hostname: "127.0.0.1" });
  await once(word, "listening");
  app.use("/json", rateLimit("1/min", { name: "json", onDenied: () => Response.json({ slow: "down" }) }));
  app.use("/fetched", rateLimit("1/min", { name: "fetched", onDenied: () => fetch(`http://127.0.0.1:${word.address().port}`) }));
  app.get("/*", (context) => context.text("home"));
  await serving(() => serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }), async (url) => {
    for (const [path, text] of [["json", '{"slow":"down"}'], ["fetched", "slow down"]]) {
      await fetch(`${url}/${path}`);
      const denied = await fetch(`${url}/${path}`);
      assert.deepEqual([denied.status, await denied.text()], [429, text]);
      assert(denied.headers.get("retry-after") > 0 && denied.headers.get("ratelimit-policy"));
    }
  });
  word.close();
  word.closeAllConnections();
});

// Only responses made by the context had them.
test("Hono: a response of its own has limit headers, those of all layers", async () => {
  const app = new Hono();
  app.use(rateLimit("9/min", { by: "global", name: "outer" }));
  app.get("/own", rateLimit("5/min", { by: "global", name: "inner" }), () => new Response("own", { status: 201, headers: { "x-own": "yes" } }));
  app.get("/replaced", async (context) => void (context.res = new Response("replaced")));
  app.get("/fixed", () => Response.redirect("http://127.0.0.1/"));
  const found = async (path) => {
    const response = await app.request(path);
    return [response.status, await response.text(), response.headers.get("x-own"), response.headers.get("ratelimit-policy")];
  };
  assert.deepEqual(await found("/own"), [201, "own", "yes", '"outer";q=9;w=60,"inner";q=5;w=60']);
  assert.deepEqual(await found("/replaced"), [200, "replaced", null, '"outer";q=9;w=60']);
  assert.deepEqual(await found("/fixed"), [302, "", null, '"outer";q=9;w=60']);
});

// A client that leaves is known by the signal of its request where there is no response of Node's.
test("Hono: without Node's server, a client that disconnects before the response is counted", async () => {
  const app = new Hono();
  const leaving = new AbortController();
  app.use(rateLimit("1/min", { by: "global", countWhen: () => false }));
  app.get("/", (context) => context.text("home"));
  app.get("/left", (context) => {
    leaving.abort();
    return context.text("nobody reads this");
  });
  assert.equal((await app.request("/")).status, 200);
  assert.equal((await app.request("/left", { signal: leaving.signal })).status, 200);
  assert.equal((await app.request("/")).status, 429);
});
