// The path of an HTTP request through a limit, the same for every framework. What differs between them is a host: an object of
// functions that find a request's parts.
"use strict";

const { inspect } = require("node:util");
const addon = require("./addon.js");
const { promised } = require("./answers.js");
const { cost: charge, nameOf, pairs } = require("./attributes.js");
const { ConfigError, UsageError } = require("./errors.js");
const { pageOf } = require("./layers.js");
const { Limiter, checkHttp, headersOf, needsOf, report, watchedOf } = require("./limiter.js");
const { SETTINGS, known } = require("./options.js");
const { KEY } = require("./rules.js");
const { limiterFor } = require("./shared.js");
const { Quota } = require("./quota.js");
const { Verdict } = require("./verdict.js");
const { SETTING, warn } = require("./warnings.js");

/** Where inner layers find the outermost one, so that all limits are in one set of headers. */
const LAYER = Symbol("tollkeeper.layer");

/**
 * The object of a request that carries its layer: its list of headers, if it is a request of Node's own server. Express changes
 * the prototype of every request, after which each property of it that is read or added costs as much as a decision. A host that has
 * the object already may give it instead of the request.
 */
const carrier = (request) => request.rawHeaders ?? request;

const OPTIONS = ["limit", "by", "limiter", "name", "attributes", "exempt", "cost", "address", "countWhen", "onDenied", ...SETTINGS];

/** What to write instead of options of express-rate-limit, rate-limiter-flexible and @fastify/rate-limit. */
const INSTEAD = {
  windowMs: 'the window with the limit, such as rateLimit("100/15min")',
  max: 'the limit with its window, such as rateLimit("100/15min")',
  points: 'the limit with its window, such as rateLimit("10/s")',
  duration: 'the window with the limit, such as rateLimit("10/s")',
  timeWindow: 'the window with the limit, such as { limit: "100/min" }',
  keyGenerator: "`by`, a function of the request",
  skip: "`exempt`, paths or a function of the request",
  allowList: "`exempt`, paths or a function of the request",
  handler: "`onDenied`, a function of the request, the response and the verdict",
  message: "`onDenied`, or `deny` of a rule",
  errorResponseBuilder: "`onDenied`, a function of the request, the reply and the verdict",
  statusCode: "`denyStatus`",
  standardHeaders: '`headers`, such as "draft-07" or "x-ratelimit-epoch"',
  legacyHeaders: '`headers`, such as "draft-07" or "x-ratelimit-epoch"',
  ipv6Subnet: "`ipv6Prefix`",
  skipSuccessfulRequests: "`countWhen`, such as (request, response) => response.statusCode >= 400",
  skipFailedRequests: "`countWhen`, such as (request, response) => response.statusCode < 400",
  requestWasSuccessful: "`countWhen`, a function of the request and the response",
  passOnStoreError: "`on_store_failure` of a rule: open, closed or local",
  skipOnError: "`on_store_failure` of a rule: open, closed or local",
  storeClient: '`store`, a URL such as "redis://127.0.0.1:6379"',
  redis: '`store`, a URL such as "redis://127.0.0.1:6379"',
};

const DELAYED = 49; // "1"
const DENIED = 50; // "2"
/** An answer starts with its outcome and its number on its page. */
const START = 2;

/** Adds an inner layer's verdict to an outer one: the limit headers of both. */
let joined;

/** The decision on one request, from the text of the addon: see `src/layer.rs`. */
class Passage {
  #names;
  #number;
  #page;
  #text;

  constructor(text, names) {
    const outcome = text.charCodeAt(0);
    this.#number = text.charCodeAt(1);
    this.#page = pageOf(this.#number);
    this.#names = names;
    this.#text = text;
    this.allowed = outcome !== DENIED;
    /** Seconds that an admitted request has to wait for its turn. */
    this.delay = outcome === DELAYED ? Number(text.slice(START, text.indexOf("\n", START))) : 0;
  }

  /**
   * The limit headers of this layer and of those around it, names and values in turn. An empty value is for a header that is to be
   * removed: an outer layer wrote it in another style.
   */
  headers(request) {
    const place = carrier(request);
    const outer = place[LAYER];
    if (outer !== undefined) return joined(outer, this);
    place[LAYER] = this;
    return fields(this.#names, this.#text, this.delay > 0 ? this.#text.indexOf("\n", START) + 1 : START);
  }

  /** Status, headers and body for a denied request. */
  denial(request) {
    const outer = carrier(request)[LAYER];
    if (outer === undefined) return response(this.#text, START);
    const denial = response(addon.denial(this.#page, this.#number), 0);
    denial.headers.push(...joined(outer, this));
    return denial;
  }

  /** The verdict; undefined for a request that was refused because its identity is contradictory or missing. */
  get verdict() {
    const text = addon.verdict(this.#page, this.#number);
    return text ? new Verdict(text) : undefined;
  }

  /** Releases the slots: the request has ended. */
  release() {
    addon.release(this.#page, this.#number);
  }

  /** Gives back what the request was charged: it does not count. */
  giveBack(isRemote) {
    return promised(isRemote, (ticket) => addon.giveBack(this.#page, this.#number, ticket), nothing);
  }

  // Not a private method: those cost every instance a property.
  static {
    joined = (outer, inner) => {
      const text = addon.join(outer.#page, outer.#number, inner.#page, inner.#number);
      return text === "" ? [] : text.split("\n");
    };
  }
}

const nothing = () => undefined;

/** Names and values in turn; the values are the lines of a text from here on. There are none if no rule applied. */
function fields(names, text, start) {
  if (start === text.length) return [];
  const flat = new Array(names.length * 2);
  for (let index = 0; index < names.length; index++) {
    const end = index + 1 < names.length ? text.indexOf("\n", start) : text.length;
    flat[index * 2] = names[index];
    flat[index * 2 + 1] = text.slice(start, end);
    start = end + 1;
  }
  return flat;
}

/** The response in a text: the status, names and values of headers, each on its own line; an empty line, and the body. */
function response(text, start) {
  const end = text.indexOf("\n\n", start);
  const [status, ...headers] = text.slice(start, end).split("\n");
  return { status: Number(status), headers, body: text.slice(end + 2) };
}

/** A limit on requests, or the rules of a limiter. */
class Guard {
  #about;
  #address;
  #attributes;
  #by;
  #cost;
  #countWhen;
  #exempt;
  #hasWarned = false;
  #host;
  #passage;
  #watches;

  constructor(host, limit, options = {}) {
    if (isOptions(limit)) {
      requireNoRequest(host, limit);
      [limit, options] = [limit.limit, limit];
    }
    checkOptions(host, options);
    const { by, name, attributes, exempt = [], cost = 1, address, countWhen, onDenied, limit: _, limiter, ...settings } = options;
    if ((limit === undefined) === (limiter === undefined)) {
      throw new UsageError('give either a limit, such as "100/min burst 20", or a limiter');
    }
    if (by !== undefined && typeof by !== "string" && typeof by !== "function") {
      throw new ConfigError(`by: must be an attribute such as "header.x-api-key|ip", or a function, not ${by}`);
    }
    for (const [option, value] of Object.entries({ attributes, address, countWhen, onDenied })) {
      if (value !== undefined && typeof value !== "function") throw new ConfigError(`${option}: must be a function, not ${value}`);
    }
    if (limiter === undefined) {
      if (attributes !== undefined) {
        throw new UsageError("attributes: only for rules; pass `limiter` instead of a limit, or use `by` to set the key");
      }
      ({ limiter: this.limiter, about: this.#about } = limiterFor(limit, by, name, settings));
    } else {
      if (!(limiter instanceof Limiter)) throw new ConfigError("limiter: create it with Limiter.fromRules or Limiter.fromFile");
      if (Object.keys(settings).length > 0 || name !== undefined || typeof by === "string") {
        throw new UsageError("a limiter has its own settings; pass them to Limiter.fromRules or Limiter.fromFile");
      }
      this.limiter = limiter;
    }
    this.onDenied = onDenied;
    this.#countWhen = countWhen;
    this.#host = host;
    const names = headersOf(this.limiter);
    this.#passage = (text) => new Passage(text, names);
    this.#attributes = attributes;
    this.#by = typeof by === "function" ? by : undefined;
    this.#cost = typeof cost === "function" ? cost : charge(cost);
    this.#exempt = exemption(exempt, host);
    // The result of a function is not the peer, which may be a proxy.
    this.#watches = address === undefined;
    this.#address = address ?? (this.limiter.trustsProxies ? host.peer : host.address);
  }

  /** Whether the responses decide which requests count: see `settle`. */
  get seesResponses() {
    return this.#countWhen !== undefined;
  }

  /**
   * Gives the charge of a request back if its response does not count; `about` is what the framework's handlers get. If that cannot be
   * found out, it counts.
   */
  async settle(passage, ...about) {
    try {
      const counts = this.#countWhen(...about);
      // At once, if nothing has to be waited for.
      if (isPromise(counts) ? await counts : counts) return;
    } catch (error) {
      if (!this.#hasWarned) warn(`countWhen failed, so requests count: ${shown(error)}`, SETTING);
      this.#hasWarned = true;
      return;
    }
    // What is wrong with a store is reported elsewhere, and the request counts then.
    await passage.giveBack(this.limiter.isRemote).catch(nothing);
  }

  /** The verdict for `onDenied`. There is none if the answer is ours: without that function, and for a request that was refused undecided. */
  verdictToAnswer(passage) {
    return this.onDenied === undefined ? undefined : passage.verdict;
  }

  /** Whether requests hold slots until they end. */
  get holdsSlots() {
    return needsOf(this.limiter).slots;
  }

  /** A passage, or a promise of one, or undefined for a request that is exempt. `raw` is for the host, if it has read the headers already. */
  decide(request, raw) {
    try {
      const isExempt = this.#exempt?.(request);
      // A promise would be true, whatever it is of.
      if (isPromise(isExempt)) {
        return Promise.resolve(isExempt).then((isExempt) => (isExempt ? undefined : this.#decide(request, raw))).catch(fail);
      }
      return isExempt ? undefined : this.#decide(request, raw);
    } catch (error) {
      throw failure(error);
    }
  }

  #decide(request, raw) {
    const key = this.#by === undefined ? undefined : this.#by(request);
    const cost = typeof this.#cost === "function" ? this.#cost(request) : this.#cost;
    const attributes = this.#attributes === undefined ? undefined : this.#attributes(request);
    if (isPromise(key) || isPromise(cost) || isPromise(attributes)) {
      return Promise.all([key, cost, attributes]).then(([key, cost, attributes]) => this.#ask(request, raw, key, charge(cost), attributes)).catch(fail);
    }
    return this.#ask(request, raw, key, typeof this.#cost === "function" ? charge(cost) : cost, attributes);
  }

  #ask(request, raw, key, cost, attributes) {
    const host = this.#host;
    const needs = needsOf(this.limiter);
    const method = needs.method ? host.method(request) : undefined;
    const target = needs.target ? host.target(request) : undefined;
    const watched = this.#watches && needs.address ? watchedOf(this.limiter) : undefined;
    const names = watched === undefined ? needs.headers : [...new Set([...needs.headers, ...watched])];
    const headers = names.length > 0 ? host.headers(request, names, raw) : undefined;
    const answer = checkHttp(
      this.limiter,
      needs.address ? this.#address(request) : undefined,
      method,
      target,
      headers,
      this.#known(request, needs, key, attributes),
      cost,
      this.#passage,
      this.#countWhen !== undefined,
    );
    if (watched !== undefined) report(this.limiter);
    return answer;
  }

  /** Attributes from the framework or the caller's function. */
  #known(request, needs, key, attributes) {
    if (this.#about === undefined && this.#by === undefined && this.#attributes === undefined && !needs.user) return undefined;
    // What comes first counts.
    const known = this.#attributes === undefined ? (this.#about?.slice() ?? []) : pairs(attributes);
    if (this.#by !== undefined) push(known, KEY, nameOf(key));
    if (needs.user) push(known, "user", nameOf(this.#host.user(request)));
    return known;
  }
}

function push(known, name, value) {
  if (value !== undefined) known.push(name, value);
}

/** Refuses what a framework passes to the function itself, as in `app.use(rateLimit)`. */
function requireNoRequest(host, options) {
  if (options.rawHeaders === undefined && typeof options.req !== "object") return;
  throw new UsageError(`${host.name} is not a middleware itself: call it with a limit, as in ${host.name}("100/min")`);
}

/** Refuses unknown options. */
function checkOptions(host, options) {
  known(host.name, options, OPTIONS, INSTEAD);
}

function isOptions(limit) {
  return typeof limit === "object" && limit !== null && !Array.isArray(limit) && !(limit instanceof Quota);
}

function isPromise(value) {
  return typeof value === "object" && value !== null && typeof value.then === "function";
}

/** An error as a text. Anything can be thrown, also what has no text. */
function shown(error) {
  return typeof error?.stack === "string" ? error.stack : inspect(error);
}

/** What a function of the application has thrown, as an error: frameworks let a request pass that fails with nothing, or with "route". */
function failure(error) {
  if (typeof error === "object" && error !== null) return error;
  return new Error(`a function of the application failed with ${inspect(error)}`);
}

/** The same, thrown. */
function fail(error) {
  throw failure(error);
}

/** Paths, or a function of the request. */
function exemption(exempt, host) {
  if (typeof exempt === "function") return exempt;
  if (!Array.isArray(exempt) || !exempt.every((path) => typeof path === "string")) {
    throw new ConfigError(`exempt: must be a list of paths such as ["/healthz"], or a function, not ${exempt}`);
  }
  if (exempt.length === 0) return undefined;
  const below = exempt.filter((path) => path.endsWith("/*")).map((path) => path.slice(0, -1));
  const paths = new Set(exempt.filter((path) => !path.endsWith("/*")));
  for (const path of [...below, ...paths]) {
    // Otherwise it would never match.
    if (path.includes("*")) throw new ConfigError(`exempt: "${path}": only a trailing /* is supported, as in "/static/*"; pass a function for other patterns`);
    if (!path.startsWith("/")) throw new ConfigError(`exempt: "${path}": a path starts with a slash, as in "/healthz"`);
  }
  return (request) => {
    const target = host.target(request);
    const end = target.indexOf("?");
    const path = end < 0 ? target : target.slice(0, end);
    return paths.has(path) || below.some((folder) => path.startsWith(folder));
  };
}

/** Waits for the turn of an admitted request, then goes on. */
function afterDelay(seconds, proceed) {
  setTimeout(proceed, seconds * 1000);
}

/** The verdict of all limits on a request so far. */
function verdictOf(request) {
  return carrier(request)[LAYER]?.verdict;
}

module.exports = { Guard, afterDelay, checkOptions, failure, isOptions, isPromise, verdictOf };
