import Router from "@koa/router";
import Koa from "koa";
import { rateLimit } from "tollkeeper/koa";
import { conforms } from "./web.mjs";

conforms("Koa", ({ all, login, slow }) => {
  const app = new Koa();
  const router = new Router();
  app.silent = true;
  if (all) app.use(rateLimit(...all));
  router.get("/", (context) => (context.body = "home"));
  router.post("/login", ...(login ? [rateLimit(...login)] : []), (context) => (context.body = "in"));
  router.get("/slow", async (context) => {
    await slow;
    context.body = "slow";
  });
  app.use(router.routes());
  return app.listen(0, "127.0.0.1");
});
