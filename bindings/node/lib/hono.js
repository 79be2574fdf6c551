// Rate limiting for Hono, on Node, Bun and Deno.
//
//   app.use(rateLimit("100/min burst 20"))
"use strict";

const { Guard, afterDelay, verdictOf } = require("./guard.js");
const incoming = require("./incoming.js");

const HOST = {
  name: "rateLimit",
  peer,
  address: peer,
  method: (context) => context.req.method,
  target(context) {
    const { url } = context.req;
    const path = url.indexOf("/", url.indexOf("://") + 3);
    return path < 0 ? "/" : url.slice(path);
  },
  headers(context, names) {
    const request = context.env?.incoming;
    // Only Node's own request shows a header that was sent twice.
    if (request?.rawHeaders) return incoming.headers(request, names);
    return names.flatMap((name) => {
      const value = context.req.raw.headers.get(name);
      return value === null ? [] : [name, value];
    });
  },
  user: (context) => context.get("user"),
};

/** The peer's address, as each runtime's server provides it. */
function peer(context) {
  const { env } = context;
  if (env?.incoming) return incoming.peer(env.incoming);
  if (env?.remoteAddr) return env.remoteAddr.hostname;
  const server = env?.server ?? env;
  return typeof server?.requestIP === "function" ? server.requestIP(context.req.raw)?.address : undefined;
}

/** Limits requests: a middleware for all of them, or for single routes. */
function rateLimit(limit, options) {
  const guard = new Guard(HOST, limit, options);
  const middleware = async (context, next) => {
    const passage = await guard.decide(context);
    if (passage === undefined) return next();
    if (!passage.allowed) return deny(guard, passage, context);
    const request = context.req.raw;
    set(context, (request[LIMITS] = passage.headers(request)));
    const outgoing = context.env?.outgoing;
    if (guard.holdsSlots && outgoing) incoming.whenOver(outgoing, () => passage.release());
    if (passage.delay > 0) await new Promise((resolve) => afterDelay(passage.delay, resolve));
    try {
      await next();
      complete(context, request[LIMITS]);
      if (guard.seesResponses && !hasGone(context)) await guard.settle(passage, context);
    } finally {
      // If there is no event for the end of the response, it ends when it has been created.
      if (guard.holdsSlots && !outgoing) passage.release();
    }
  };
  /** For `close`, `inspect` and `reset`. */
  middleware.limiter = guard.limiter;
  return middleware;
}

/** Where a request carries the limit headers of all layers so far. */
const LIMITS = Symbol("tollkeeper.limits");

/** Adds the limit headers to a response that was not made by the context, and has none of its headers. */
function complete(context, limits) {
  // That of a connection that switches protocols cannot be changed.
  if (context.res.status === 101) return;
  for (let index = 0; index < limits.length; index += 2) {
    if (limits[index + 1] === "") context.res.headers.delete(limits[index]);
    else if (!context.res.headers.has(limits[index])) context.header(limits[index], limits[index + 1]);
  }
}

/** Whether the client has gone before its response. */
function hasGone({ env, req }) {
  return env?.outgoing ? incoming.isOver(env.outgoing) : req.raw.signal?.aborted;
}

async function deny(guard, passage, context) {
  const { status, headers, body } = passage.denial(context.req.raw);
  const verdict = guard.verdictToAnswer(passage);
  // The denial has those of all layers.
  context.req.raw[LIMITS] = [];
  if (verdict === undefined) {
    const fields = new Headers();
    for (let index = 0; index < headers.length; index += 2) {
      if (headers[index + 1] !== "") fields.set(headers[index], headers[index + 1]);
    }
    return new Response(body, { status, headers: fields });
  }
  const limits = incoming.withoutType(headers);
  context.status(status);
  set(context, limits);
  return completed(await guard.onDenied(context, verdict), status, limits);
}

/** A response that was not made by the context has neither the status nor the headers of the denial. */
function completed(response, status, headers) {
  // By its name: Hono's server for Node replaces the class, of which what `fetch` and `Response.json` return is then no instance.
  if (Object.prototype.toString.call(response) !== "[object Response]") return response;
  const fields = new Headers(response.headers);
  for (let index = 0; index < headers.length; index += 2) {
    const name = headers[index];
    if (headers[index + 1] !== "" && !fields.has(name)) fields.set(name, headers[index + 1]);
  }
  return new Response(response.body, { status: response.status === 200 ? status : response.status, headers: fields });
}

function set(context, flat) {
  for (let index = 0; index < flat.length; index += 2) context.header(flat[index], flat[index + 1] || undefined);
}

exports.rateLimit = rateLimit;
/** The verdict of all limits on a request so far. */
exports.verdictOf = (context) => verdictOf(context.req.raw);
