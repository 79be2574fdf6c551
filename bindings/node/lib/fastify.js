// Rate limiting for Fastify.
//
//   await app.register(rateLimit, { limit: "100/min burst 20" })
"use strict";

const { Guard, afterDelay, failure, isOptions, isPromise, verdictOf } = require("./guard.js");
const incoming = require("./incoming.js");

/** Marks hooks that limit. */
const LIMITED = Symbol("limited");

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
    // Options of the one limit, not of those of routes.
    const { by, name, cost, countWhen, exempt, onDenied, ...common } = rest;
    app.decorate("rateLimiter", guard?.limiter ?? null);
    if (guard !== undefined) app.addHook("onRequest", hook(guard, (route) => route?.rateLimit === false));
    const guards = new Map();
    app.addHook("onRoute", (route) => onRoute(route, common, guards));
    done();
  } catch (error) {
    done(error);
  }
}

function onRoute(route, common, guards) {
  const own = route.config?.rateLimit;
  if (own === undefined || own === false) return;
  const hooks = [route.onRequest ?? []].flat();
  // The HEAD that Fastify adds to a GET is a copy of it, and counts with it.
  if (hooks.some((hook) => hook[LIMITED])) return;
  const { limit, ...options } = isOptions(own) ? own : { limit: own };
  const name = ruleName(`${[route.method].flat().join("-").replace(/^HEAD$/, "GET")}:${route.url}`);
  let guard = guards.get(name);
  if (guard === undefined) guards.set(name, (guard = new Guard(HOST, limit, { name, ...common, ...options })));
  route.onRequest = [...hooks, hook(guard)];
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
  onRequest[LIMITED] = true;
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
  for (let index = 0; index < flat.length; index += 2) reply.header(flat[index], flat[index + 1]);
}

// What `fastify-plugin` does: the hooks are for the whole application, not for this plugin's own routes.
rateLimit[Symbol.for("skip-override")] = true;
rateLimit[Symbol.for("fastify.display-name")] = "tollkeeper";
rateLimit[Symbol.for("plugin-meta")] = { name: "tollkeeper", fastify: ">=4" };

exports.rateLimit = rateLimit;
exports.limited = limited;
/** The verdict of all limits on a request so far. */
exports.verdictOf = (request) => verdictOf(request.raw);
