// Koa with a limit on everything and a stricter one on logging in.
//
//   node koa_app.mjs
import Router from "@koa/router";
import Koa from "koa";
import { rateLimit } from "tollkeeper/koa";

const store = process.env.STORE ?? "memory:"; // "redis://127.0.0.1:6379" for several processes

const router = new Router();
router.post("/login", rateLimit("5/min", { store, name: "login" }), (context) => {
  context.body = "ok";
});

const app = new Koa();
app.use(rateLimit("100/min burst 20", { store, name: "all" }));
app.use(router.routes());
app.listen(process.env.PORT ?? 3000, "127.0.0.1");
