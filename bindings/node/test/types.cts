// The same for modules of the older kind.
import tollkeeper = require("tollkeeper");
import express = require("tollkeeper/express");

const allowed: boolean = tollkeeper.keyed("10/s").check(new Uint8Array(1)).allowed;
const middleware = express.rateLimit({ limit: "5/min", store: "memory:" });
console.log(allowed, middleware.limiter.rules);
