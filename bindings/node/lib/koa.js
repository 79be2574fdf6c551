// Rate limiting for Koa.
//
//   app.use(rateLimit("100/min burst 20"))
"use strict";

const { Guard, afterDelay, failure, verdictOf } = require("./guard.js");
const incoming = require("./incoming.js");

const HOST = {
  name: "rateLimit",
  peer: (context) => incoming.peer(context.req),
  address: (context) => (context.app.proxy ? context.ip : incoming.peer(context.req)),
  method: (context) => context.method,
  target: (context) => context.originalUrl,
  headers: (context, names) => incoming.headers(context.req, names),
  user: (context) => context.state.user,
};

/** Limits requests: a middleware for all of them, or for a route of a router. */
function rateLimit(limit, options) {
  const guard = new Guard(HOST, limit, options);
  const middleware = async (context, next) => {
    const passage = await guard.decide(context);
    if (passage === undefined) return next();
    if (!passage.allowed) return deny(guard, passage, context);
    set(context, passage.headers(context.req));
    if (guard.seesResponses) incoming.whenAnswered(context.res, () => guard.settle(passage, context));
    if (guard.holdsSlots) incoming.whenOver(context.res, () => passage.release());
    if (passage.delay > 0) await new Promise((resolve) => afterDelay(passage.delay, resolve));
    return next();
  };
  /** For `close`, `inspect` and `reset`. */
  middleware.limiter = guard.limiter;
  return middleware;
}

async function deny(guard, passage, context) {
  const { status, headers, body } = passage.denial(context.req);
  const verdict = guard.verdictToAnswer(passage);
  context.status = status;
  if (verdict === undefined) {
    context.body = body;
    // After the body, which brings a content type of its own.
    return set(context, headers);
  }
  set(context, incoming.withoutType(headers));
  try {
    await guard.onDenied(context, verdict);
  } catch (error) {
    throw failure(error);
  }
}

function set(context, flat) {
  for (let index = 0; index < flat.length; index += 2) {
    if (flat[index + 1] === "") context.remove(flat[index]);
    else context.set(flat[index], flat[index + 1]);
  }
}

exports.rateLimit = rateLimit;
/** The verdict of all limits on a request so far. */
exports.verdictOf = (context) => verdictOf(context.req);
