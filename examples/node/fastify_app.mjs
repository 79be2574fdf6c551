// Fastify with a limit on everything and a stricter one on logging in.
//
//   node fastify_app.mjs
import Fastify from "fastify";
import { rateLimit } from "tollkeeper/fastify";

const app = Fastify();
await app.register(rateLimit, {
  limit: "100/min burst 20",
  store: process.env.STORE ?? "memory:", // "redis://127.0.0.1:6379" for several processes
});

app.post("/login", { config: { rateLimit: "5/min" } }, async () => "ok");
app.get("/health", { config: { rateLimit: false } }, async () => "ok");

await app.listen({ port: Number(process.env.PORT ?? 3000), host: "127.0.0.1" });
