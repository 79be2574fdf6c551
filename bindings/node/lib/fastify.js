// Rate limiting for Fastify.
//
//   await app.register(rateLimit, { limit: "100/min burst 20" })
"use strict";

const { ConfigError } = require("./errors.js");
const { Guard, afterDelay, checkOptions, failure, isOptions, isPromise, verdictOf } = require("./guard.js");
const incoming = require("./incoming.js");

const HOST = {
  name: "rateLimit",
  peer: (request) => incoming.peer(request.raw),
  address: (request) => request.ip,
  method: (request) => request.method,
  target: (request) => request.originalUrl ?? request.raw.url,
  headers: (request, names) => incoming.headers(request.raw, names),
  user: (request) => request.user,
};

/**
 * The plugin: limits all requests by `limit`, if it is given, and those of a route by `config.rateLimit` of the route: a limit, an
 * object with `limit` and other options, or false for a route that is not limited.
 */
function rateLimit(app, options, done) {
  try {
    const { limit, limiter, ...settings } = options;
    const { prefix: _, logLevel: __, ...rest } = settings;
    const guard = limit === undefined && limiter === undefined ? undefined : new Guard(HOST, limit, { ...rest, limiter });
    if (guard === undefined) requireNoLimit(options, rest);
    // Options of the one limit, not of those of routes.
    const { attributes, by, name, cost, countWhen, exempt, onDenied, ...common } = rest;
    app.decorate("rateLimiter", guard?.limiter ?? null);
    if (guard !== undefined) app.addHook("onRequest", hook(guard, (route) => route?.rateLimit === false));
    const hooks = new Map();
    app.addHook("onRoute", (route) => onRoute(route, common, hooks));
    app.addHook("onRequest", late(common, hooks));
    done();
  } catch (error) {
    done(error);
  }
}

/** Refuses options of a limit that is missing: nobody would be limited. */
function requireNoLimit(options, rest) {
  if (typeof options !== "object") throw new ConfigError('rateLimit: options must be an object such as { limit: "100/min" }');
  checkOptions(HOST, rest);
  const own = ["attributes", "by", "name", "cost", "countWhen", "exempt", "onDenied"].find((name) => rest[name] !== undefined);
  if (own !== undefined) throw new ConfigError(`rateLimit: \`${own}\` needs a \`limit\`; add one, or set \`${own}\` in the config of routes`);
}

function onRoute(route, common, hooks) {
  const own = route.config?.rateLimit;
  if (own === undefined || own === false) return;
  const others = [route.onRequest ?? []].flat();
  const limits = hookOf(route, own, common, hooks);
  // The HEAD that Fastify adds to a GET is a copy of it, and counts with it.
  if (!others.includes(limits)) route.onRequest = [...others, limits];
}

/** The hook of a route's own limit. Routes of one path may have different ones, by their version or host. */
function hookOf(route, own, common, hooks) {
  const path = pathOf(route);
  let ofPath = hooks.get(path);
  if (ofPath === undefined) hooks.set(path, (ofPath = new Map()));
  let limits = ofPath.get(own);
  if (limits === undefined) {
    const { limit, ...options } = isOptions(own) ? own : { limit: own };
    ofPath.set(own, (limits = hook(new Guard(HOST, limit, { name: ruleName(path), ...common, ...options }))));
  }
  return limits;
}

/** Limits routes that were there before the plugin was loaded: where nobody has awaited `register`, `onRoute` has not seen them. */
function late(common, hooks) {
  const added = new Map();
  // By the config of a route; null if it has its hook.
  const known = new WeakMap();
  return (request, reply, done) => {
    const route = request.routeOptions;
    const own = route?.config?.rateLimit;
    if (own === undefined || own === false) return done();
    let limits = known.get(route.config);
    try {
      if (limits === undefined) known.set(route.config, (limits = hooks.get(pathOf(route))?.has(own) ? null : hookOf(route, own, common, added)));
    } catch (error) {
      return done(error);
    }
    if (limits === null) done();
    else limits(request, reply, done);
  };
}

function pathOf({ method, url }) {
  return `${[method].flat().join("-").replace(/^HEAD$/, "GET")}:${url}`;
}

/** A text as the name of a rule, which goes into headers and keys. */
function ruleName(text) {
  return text.replace(/[{}<>]/g, "").replace(/[^A-Za-z0-9._:/@-]+/g, "-");
}

/** A limit for one route: `{ onRequest: limited("5/min") }`. */
function limited(limit, options) {
  return hook(new Guard(HOST, limit, options));
}

function hook(guard, isSkipped = () => false) {
  const onRequest = (request, reply, done) => {
    if (isSkipped(request.routeOptions?.config)) return done();
    let decided;
    try {
      decided = guard.decide(request);
    } catch (error) {
      return done(error);
    }
    if (decided instanceof Promise) decided.then((passage) => proceed(guard, passage, request, reply, done), done);
    else proceed(guard, decided, request, reply, done);
  };
  /** For `close`, `inspect` and `reset`. */
  onRequest.limiter = guard.limiter;
  return onRequest;
}

function proceed(guard, passage, request, reply, done) {
  if (passage === undefined) return done();
  try {
    if (!passage.allowed) return deny(guard, passage, request, reply, done);
    // First: what follows fails if the response has been sent meanwhile.
    if (guard.holdsSlots) incoming.whenOver(reply.raw, () => passage.release());
    set(reply, passage.headers(request.raw));
    if (guard.seesResponses) incoming.whenAnswered(reply.raw, () => guard.settle(passage, request, reply));
  } catch (error) {
    return done(error);
  }
  if (passage.delay > 0) afterDelay(passage.delay, done);
  else done();
}

function deny(guard, passage, request, reply, done) {
  const { status, headers, body } = passage.denial(request.raw);
  const verdict = guard.verdictToAnswer(passage);
  reply.code(status);
  set(reply, verdict === undefined ? headers : incoming.withoutType(headers));
  if (verdict === undefined) return void reply.send(body);
  // Fastify would answer with the status of the denial, as if nothing were wrong.
  const fail = (error) => done(reply.code(500) && failure(error));
  try {
    const answered = guard.onDenied(request, reply, verdict);
    // As with Fastify's own handlers, one that returns nothing sends its answer itself. A reply is a promise, too.
    if (answered === undefined || answered === reply) return;
    if (isPromise(answered)) Promise.resolve(answered).then((answer) => send(reply, answer)).catch(fail);
    else send(reply, answered);
  } catch (error) {
    fail(error);
  }
}

/** Sends an answer, unless the application has done so itself. */
function send(reply, answer) {
  const isSent = reply.sent || (answer === undefined && (reply.raw.headersSent || reply.request.raw.aborted));
  if (!isSent) reply.send(answer);
}

function set(reply, flat) {
  for (let index = 0; index < flat.length; index += 2) {
    if (flat[index + 1] === "") reply.removeHeader(flat[index]);
    else reply.header(flat[index], flat[index + 1]);
  }
}

// What `fastify-plugin` does: the hooks are for the whole application, not for this plugin's own routes.
rateLimit[Symbol.for("skip-override")] = true;
rateLimit[Symbol.for("fastify.display-name")] = "tollkeeper";
rateLimit[Symbol.for("plugin-meta")] = { name: "tollkeeper", fastify: ">=4" };

exports.rateLimit = rateLimit;
exports.limited = limited;
/** The verdict of all limits on a request so far. */
exports.verdictOf = (request) => verdictOf(request.raw);
