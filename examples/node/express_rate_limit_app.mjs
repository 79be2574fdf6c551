// An application that uses express-rate-limit, with this package as its store: one line is different.
//
//   node express_rate_limit_app.mjs
import express from "express";
import { rateLimit } from "express-rate-limit";
import { TollkeeperStore } from "tollkeeper/express-rate-limit";

const store = process.env.STORE ?? "memory:"; // "redis://127.0.0.1:6379" for several processes

const app = express();
app.post(
  "/login",
  rateLimit({
    windowMs: 24 * 60 * 60 * 1000,
    limit: 5,
    standardHeaders: "draft-8",
    legacyHeaders: false,
    store: new TollkeeperStore({ store }),
  }),
  (request, response) => response.send("ok"),
);
app.listen(process.env.PORT ?? 3000, "127.0.0.1");
