// Rate limiting for Express 4 and 5, and for every framework that calls middleware with a request, a response and `next`.
//
//   app.use(rateLimit("100/min burst 20"))
"use strict";

const { Guard, afterDelay, failure, isPromise, verdictOf } = require("./guard.js");
const incoming = require("./incoming.js");
const { TRUST_PROXY, warn } = require("./warnings.js");

const HOST = {
  name: "rateLimit",
  peer: incoming.peer,
  address(request) {
    const trust = request.app?.settings?.["trust proxy"];
    if (!trust) return incoming.peer(request);
    if (trust === true) warnOfTrust();
    return request.ip;
  },
  method: (request) => request.method,
  target: (request) => request.originalUrl ?? request.url,
  headers: (_request, names, raw) => incoming.headersIn(raw, names),
  user: (request) => request.user,
};

let hasWarned = false;

/** Trusting every proxy lets every client choose its own address. */
function warnOfTrust() {
  if (hasWarned) return;
  hasWarned = true;
  warn(
    '"trust proxy" is true, so clients can choose the address that they are limited by. Set it to the number of proxies or ' +
      "to their addresses, or give rateLimit trustedProxies",
    TRUST_PROXY,
  );
}

/** Limits requests: a middleware for all of them (`app.use`) or for single routes (`app.post("/login", rateLimit("5/min"), ...)`). */
function rateLimit(limit, options) {
  const guard = new Guard(HOST, limit, options);
  const middleware = (request, response, next) => {
    // Read once: Express changes the prototype of every request, after which each property that is read costs as much as a decision.
    const raw = request.rawHeaders;
    const place = raw ?? request;
    let decided;
    try {
      decided = guard.decide(request, raw);
    } catch (error) {
      return next(error);
    }
    if (decided instanceof Promise) decided.then((passage) => proceed(guard, passage, place, request, response, next), next);
    else proceed(guard, decided, place, request, response, next);
  };
  /** For `close`, `inspect` and `reset`. */
  middleware.limiter = guard.limiter;
  return middleware;
}

/** `place` carries what was decided: see `guard.js`. */
function proceed(guard, passage, place, request, response, next) {
  if (passage === undefined) return next();
  try {
    if (!passage.allowed) return deny(guard, passage, place, request, response, next);
    // First: what follows fails if the response has been sent meanwhile.
    if (guard.holdsSlots) incoming.whenOver(response, () => passage.release());
    incoming.setHeaders(response, passage.headers(place));
    if (guard.seesResponses) incoming.whenAnswered(response, () => guard.settle(passage, request, response));
  } catch (error) {
    return next(error);
  }
  if (passage.delay > 0) afterDelay(passage.delay, next);
  else next();
}

function deny(guard, passage, place, request, response, next) {
  const denial = passage.denial(place);
  const verdict = guard.verdictToAnswer(passage);
  if (verdict === undefined) return incoming.send(response, denial);
  response.statusCode = denial.status;
  incoming.setHeaders(response, incoming.withoutType(denial.headers));
  const fail = (error) => {
    // Express would answer with the status of the denial, as if nothing were wrong.
    response.statusCode = 500;
    next(failure(error));
  };
  try {
    const answered = guard.onDenied(request, response, verdict, next);
    if (isPromise(answered)) answered.then(undefined, fail);
  } catch (error) {
    fail(error);
  }
}

exports.rateLimit = rateLimit;
exports.verdictOf = verdictOf;
