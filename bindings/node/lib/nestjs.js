// Rate limiting for NestJS, on Express and on Fastify.
//
//   app.useGlobalGuards(new RateLimitGuard("100/min burst 20"))
//   @RateLimit("5/min") and @SkipRateLimit() on a controller or a handler
"use strict";

const { HttpException, SetMetadata, UseGuards } = require("@nestjs/common");
const { ConfigError, UsageError } = require("./errors.js");
const { Guard, afterDelay, verdictOf } = require("./guard.js");
const incoming = require("./incoming.js");

/** Marks what is not limited. */
const SKIPPED = "tollkeeper:skipped";

/** Node's own request: Fastify wraps it. */
const raw = (request) => request.raw ?? request;

const HOST = {
  name: "RateLimitGuard",
  peer: (request) => incoming.peer(raw(request)),
  address: (request) => request.ip ?? incoming.peer(raw(request)),
  method: (request) => request.method,
  target: (request) => request.originalUrl ?? request.url,
  headers: (request, names) => incoming.headers(raw(request), names),
  user: (request) => request.user,
};

/** A denied request. Answered with a problem document unless the application has a filter for it. */
class RateLimitExceeded extends HttpException {
  constructor(denial, verdict) {
    super(document(denial), denial.status);
    this.name = "RateLimitExceeded";
    /** The verdict of the limits. */
    this.verdict = verdict;
  }
}

/** Nest writes objects as JSON, and wraps strings in an object. */
function document({ body, status }) {
  try {
    return JSON.parse(body);
  } catch {
    return { status, detail: body };
  }
}

/** Limits requests: for all of them with `app.useGlobalGuards`, or with `@UseGuards`. */
class RateLimitGuard {
  #guard;

  constructor(limit, options) {
    if ((options ?? limit)?.onDenied !== undefined) {
      throw new ConfigError("onDenied: Nest has exception filters; make one with @Catch(RateLimitExceeded)");
    }
    this.#guard = new Guard(HOST, limit, options);
  }

  /** For `close`, `inspect` and `reset`. */
  get limiter() {
    return this.#guard.limiter;
  }

  /** Where the request and the response are. Override it for GraphQL and others. */
  getRequestResponse(context) {
    if (context.getType() !== "http") {
      throw new UsageError(`${context.getType()} has no HTTP request to limit; override getRequestResponse(context)`);
    }
    const http = context.switchToHttp();
    return { req: http.getRequest(), res: http.getResponse() };
  }

  async canActivate(context) {
    const guard = this.#guard;
    const { req, res } = this.getRequestResponse(context);
    if (isSkipped(context)) return true;
    const passage = await guard.decide(req);
    if (passage === undefined) return true;
    if (!passage.allowed) {
      const denial = passage.denial(raw(req));
      set(res, denial.headers);
      throw new RateLimitExceeded(denial, passage.verdict);
    }
    // First: what follows fails if the response has been sent meanwhile.
    if (guard.holdsSlots) incoming.whenOver(res.raw ?? res, () => passage.release());
    set(res, passage.headers(raw(req)));
    if (guard.seesResponses) incoming.whenAnswered(res.raw ?? res, () => guard.settle(passage, req, res));
    if (passage.delay > 0) await new Promise((resolve) => afterDelay(passage.delay, resolve));
    return true;
  }
}

/** Limits a controller or a handler: `@RateLimit("5/min")`. Each has its own count; a `name` is shared by all that use it. */
function RateLimit(limit, options) {
  return (target, property, descriptor) => {
    const name = property === undefined ? target.name : `${target.constructor.name}.${String(property)}`;
    const settings = options?.limiter ? options : { name, ...options };
    return UseGuards(new RateLimitGuard(limit, settings))(target, property, descriptor);
  };
}

/** Exempts a controller or a handler from all limits; false on a handler limits it even if its controller is exempt. */
function SkipRateLimit(skip = true) {
  return SetMetadata(SKIPPED, skip);
}

/** What the handler says counts, then what the controller says. Nest has loaded `reflect-metadata`. */
function isSkipped(context) {
  const [handler, controller] = [context.getHandler(), context.getClass()].map((target) => Reflect.getMetadata(SKIPPED, target));
  return handler ?? controller ?? false;
}

function set(response, flat) {
  for (let index = 0; index < flat.length; index += 2) {
    if (flat[index + 1] === "") response.removeHeader(flat[index]);
    else response.header(flat[index], flat[index + 1]);
  }
}

exports.RateLimit = RateLimit;
exports.RateLimitExceeded = RateLimitExceeded;
exports.RateLimitGuard = RateLimitGuard;
exports.SkipRateLimit = SkipRateLimit;
/** The verdict of all limits on a request so far. */
exports.verdictOf = (request) => verdictOf(raw(request));
