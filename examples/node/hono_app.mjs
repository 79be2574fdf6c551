// Hono with a limit on everything and a stricter one on logging in.
//
//   node hono_app.mjs
import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { rateLimit } from "tollkeeper/hono";

const store = process.env.STORE ?? "memory:"; // "redis://127.0.0.1:6379" for several processes

const app = new Hono();
app.use(rateLimit("100/min burst 20", { store, name: "all" }));
app.post("/login", rateLimit("5/min", { store, name: "login" }), (context) => context.text("ok"));

serve({ fetch: app.fetch, port: Number(process.env.PORT ?? 3000), hostname: "127.0.0.1" });
