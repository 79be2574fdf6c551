// Express with a limit on everything, a stricter one on logging in, and one by user.
//
//   node express_app.mjs
import express from "express";
import { rateLimit } from "tollkeeper/express";

const store = process.env.STORE ?? "memory:"; // "redis://127.0.0.1:6379" for several processes

const app = express();
app.use(rateLimit("100/min burst 20", { store, name: "all" }));

app.post("/login", rateLimit("5/min", { store, name: "login" }), (request, response) => {
  response.send("ok");
});

const byUser = rateLimit(["2/s burst 5", "100/day"], { store, name: "reports", by: (request) => request.get("x-user") });
app.get("/reports", byUser, (request, response) => {
  response.json({ user: request.get("x-user") ?? null });
});

app.listen(process.env.PORT ?? 3000, "127.0.0.1");
