"use strict";

const { fileURLToPath } = require("node:url");
const addon = require("./addon.js");
const { converted, listen, promised, ticket } = require("./answers.js");
const { cost: charge, pairs } = require("./attributes.js");
const { batch, verdicts } = require("./batch.js");
const { UsageError, understood } = require("./errors.js");
const { given, listed, single } = require("./exceptions.js");
const { Permit, Reservation } = require("./hold.js");
const { pages } = require("./layers.js");
const { SETTINGS, known, url, written } = require("./options.js");
const { specs } = require("./rules.js");
const { Verdict } = require("./verdict.js");
const { PROXY, SETTING, warn } = require("./warnings.js");

const NOTHING = Object.freeze({});
/** The options of a request. */
const ASKED = ["cost", "rules"];
const verdict = (answer) => new Verdict(answer);
const nothing = () => undefined;
const itself = (answer) => answer;

/** Which parts of an HTTP request the rules of a limiter need. */
let needsOf;
/** The names of its limit headers. */
let headersOf;
/** Decides an HTTP request, now or later. If it may not count, its charge may be given back. */
let checkHttp;
/** The headers to pass with this request beside those that rules need; undefined for a request that is not looked at. */
let watchedOf;
/** Reports what such a request has revealed. */
let report;
/** Returns leased tokens, and waits for that. */
let closeSync;

/** After this many requests only one in so many is looked at: a proxy that is missing in `trustedProxies` sends all of them. */
const SAMPLE = 64;

/**
 * Decides requests by rules that can change while it runs: `Limiter.fromRules([...])` or `await Limiter.fromFile(path)`.
 * Creating one opens no connection and starts no thread.
 */
class Limiter {
  #check;
  #checkHttp;
  #follows;
  #headers;
  #isRemote;
  #limiter;
  #needs;
  #requests = 0;
  #reserveHttp;

  /** Use `fromRules`, `fromFile` or `fromPostgres`. */
  constructor(limiter) {
    if (!(limiter instanceof addon.Limiter)) throw new UsageError("use Limiter.fromRules([...]) or Limiter.fromFile(path)");
    for (const warning of limiter.warnings()) warn(warning, SETTING);
    this.#limiter = limiter;
    this.#check = limiter.checker();
    this.#checkHttp = limiter.httpChecker(pages, false);
    this.#headers = limiter.headerNames();
    this.#isRemote = limiter.isRemote;
    this.#follows = limiter.follows;
    // Where rules were read synchronously, nothing has been asked that is answered later.
    if (this.#follows) listen();
    if (this.#isRemote) remember(this);
  }

  /** From a rules file, as for the service. */
  static async fromFile(path, options = NOTHING) {
    return followed(ofFile(path, options));
  }

  /** The same, synchronously. */
  static fromFileSync(path, options = NOTHING) {
    const limiter = ofFile(path, options);
    if (limiter.lacksRules) attempt(() => limiter.followSync());
    return new Limiter(limiter);
  }

  /** From code: each rule is an object as in the rules file, or a line such as "100/min burst 20 by header.x-api-key|ip". */
  static fromRules(rules, options = NOTHING) {
    known("Limiter.fromRules", options, SETTINGS);
    const settings = written(specs(rules), options);
    return new Limiter(attempt(() => addon.Limiter.fromJson(settings, options.clock)));
  }

  /** With the rules in Postgres: they are read now, and followed while they change. */
  static async fromPostgres(url, options = NOTHING) {
    known("Limiter.fromPostgres", options, ["snapshot", ...SETTINGS]);
    const { snapshot, ...rest } = options;
    const settings = written([], rest, { rules_from: String(url), rules_snapshot: snapshot && file(snapshot) });
    return followed(attempt(() => addon.Limiter.fromJson(settings, rest.clock)));
  }

  /** Decides a request: `await limiter.check({ user_id: "42" })`. Cost 0 peeks; `rules` names the rules to apply. */
  check(attributes, options = NOTHING) {
    const mine = this.#isRemote ? ticket() : 0;
    try {
      const answer = ask(this.#check, attributes, options, mine);
      return answer == null ? converted(mine, answer, verdict) : Promise.resolve(new Verdict(answer));
    } catch (error) {
      return Promise.reject(understood(error));
    }
  }

  /** The same, synchronously; only if state is in memory. */
  tryCheck(attributes, options = NOTHING) {
    if (this.#isRemote) throw new UsageError("tryCheck is for limits in memory; ask Redis with `await limiter.check(...)`");
    try {
      return new Verdict(ask(this.#check, attributes, options, 0));
    } catch (error) {
      throw understood(error);
    }
  }

  /** Decides several requests, each by itself: each is attributes, or a list of what `check` takes. */
  checkMany(requests, options = NOTHING) {
    const ask = (ticket) => {
      known("limiter.checkMany", options, ["rules"]);
      requireNames(options.rules);
      const { attributes, costs, rules } = batch(requests, options.rules);
      return this.#limiter.checkMany(attributes, costs, rules, ticket);
    };
    return this.#promised(verdicts, ask);
  }

  /** Decides a request and holds its slots until `permit.release()`. */
  acquire(attributes, options = NOTHING) {
    const ask = (ticket) => {
      known("limiter.acquire", options, ASKED);
      requireNames(options.rules);
      return this.#limiter.acquire(pairs(attributes), charge(options.cost), options.rules, ticket);
    };
    return this.#promised((answer) => new Permit(answer), ask);
  }

  /** Decides a request whose cost is an estimate, corrected by `await reservation.settle(cost)` within `hold` seconds. */
  reserve(attributes, options = NOTHING) {
    const ask = (ticket) => {
      known("limiter.reserve", options, [...ASKED, "hold"]);
      requireNames(options.rules);
      if (options.hold !== undefined && typeof options.hold !== "number") throw new TypeError(`hold: must be a number of seconds, not ${options.hold}`);
      return this.#limiter.reserve(pairs(attributes), charge(options.cost), options.hold, options.rules, ticket);
    };
    return this.#promised((answer) => new Reservation(answer, this.#isRemote), ask);
  }

  /** The state of a rule's buckets for a key, without changing them. */
  inspect(rule, key) {
    return this.#promised(JSON.parse, (ticket) => this.#limiter.inspect(rule, keyOf(key), ticket));
  }

  /** Resets a rule's buckets for a key; false when there was nothing to reset. */
  reset(rule, key) {
    return this.#promised(itself, (ticket) => this.#limiter.reset(rule, keyOf(key), ticket));
  }

  /** Denies every request of a key, for a while or until lifted. `rule` is a name, or `*` for every rule that uses this key. */
  block(rule, key, options = NOTHING) {
    return this.#promised(single, (ticket) => this.#limiter.except(given("block", rule, key, options), ticket));
  }

  /** Lets every request of a key pass a rule, without charging it. */
  allow(rule, key, options = NOTHING) {
    return this.#promised(single, (ticket) => this.#limiter.except(given("allow", rule, key, options), ticket));
  }

  /** Gives a key its own limit instead of the rule's. Usage is carried over. */
  grant(rule, key, limit, options = NOTHING) {
    return this.#promised(single, (ticket) => this.#limiter.except(given("grant", rule, key, options, String(limit)), ticket));
  }

  /** Ends the exception of a rule, or of `*`, and a key. Resolves to it, or to null if there was none. */
  lift(rule, key, options = NOTHING) {
    const ask = (ticket) => {
      known("limiter.lift", options, ["by"]);
      return this.#limiter.lift(String(rule), keyOf(key), options.by, ticket);
    };
    return this.#promised(single, ask);
  }

  /** The exceptions in force. */
  exceptions() {
    return this.#promised(listed, (ticket) => this.#limiter.exceptions(ticket));
  }

  /** Connects now rather than with the first request, and rejects with any error of the store. */
  connect() {
    return this.#promised(nothing, (ticket) => this.#limiter.connect(ticket));
  }

  /** Returns leased tokens to the store. Done automatically when the process exits. */
  close() {
    if (!this.#limiter.isConnected) return Promise.resolve();
    return this.#promised(nothing, (ticket) => this.#limiter.close(ticket));
  }

  /** Replaces the rules; requests in flight finish with the old ones. Tokens missing from a bucket stay missing. */
  replaceRules(rules) {
    const json = JSON.stringify(specs(rules));
    this.#change(() => this.#limiter.replaceRules(json));
  }

  /** Replaces the rules with those in a file. */
  replaceRulesFromFile(path) {
    this.#change(() => this.#limiter.replaceRulesFromFile(file(path)));
  }

  /** The rules in force, as in a rules file. */
  get rules() {
    return JSON.parse(this.#limiter.rulesJson());
  }

  /** Of rules in Postgres: the version in force, a newer one that was refused, and why the database does not answer; otherwise null. */
  get rulesStatus() {
    const status = this.#limiter.rulesStatus();
    return status && { version: status.version, refused: status.refused ?? null, unreachable: status.unreachable ?? null };
  }

  /** Whether answers may come from a server. */
  get isRemote() {
    return this.#isRemote;
  }

  /** Whether it trusts the forwarding headers of some proxies. */
  get trustsProxies() {
    return this.#limiter.trustsProxies;
  }

  #promised(make, ask) {
    return promised(this.#isRemote, ask, make);
  }

  #change(change) {
    const warnings = attempt(change);
    this.#needs = undefined;
    for (const warning of warnings) warn(warning, SETTING);
  }

  // For the middleware of this package.
  static {
    // Rules in Postgres may change at any time.
    needsOf = (limiter) => (limiter.#follows ? limiter.#limiter.needs() : (limiter.#needs ??= limiter.#limiter.needs()));
    headersOf = (limiter) => limiter.#headers;
    checkHttp = (limiter, peer, method, target, headers, about, cost, make, mayNotCount) => {
      const check = mayNotCount ? (limiter.#reserveHttp ??= limiter.#limiter.httpChecker(pages, true)) : limiter.#checkHttp;
      const mine = limiter.#isRemote ? ticket() : 0;
      let answer;
      try {
        // A list costs more than a name and a value.
        if (headers?.length === 2) answer = check(peer, method, target, headers[0], headers[1], about, cost, mine);
        else answer = check(peer, method, target, headers, undefined, about, cost, mine);
      } catch (error) {
        throw understood(error);
      }
      return converted(mine, answer, make);
    };
    watchedOf = (limiter) => {
      const request = limiter.#requests++;
      return request < SAMPLE || request % SAMPLE === 0 ? limiter.#limiter.forwardingHeaders() : undefined;
    };
    report = (limiter) => {
      for (let notice; (notice = limiter.#limiter.takeNotice()); ) warn(notice, PROXY);
    };
    closeSync = (limiter) => limiter.#limiter.isConnected && limiter.#limiter.closeSync();
  }
}

if (Symbol.asyncDispose) Object.defineProperty(Limiter.prototype, Symbol.asyncDispose, { value: Limiter.prototype.close });

/** Asks the addon. A list costs more than one or two names and values. */
function ask(check, attributes, options, ticket) {
  if (options !== NOTHING) known("limiter.check", options, ASKED);
  const flat = pairs(attributes);
  const cost = charge(options.cost);
  requireNames(options.rules);
  if (flat.length === 2) return check(cost, ticket, options.rules, flat[0], flat[1]);
  if (flat.length === 4) return check(cost, ticket, options.rules, flat[0], flat[1], flat[2], flat[3]);
  return check(cost, ticket, options.rules, flat);
}

/** The names of rules, if they are given. */
function requireNames(rules) {
  if (rules !== undefined && !Array.isArray(rules)) throw new TypeError(`rules: must be an array of names, not ${rules}`);
}

/** A key as people name it. */
function keyOf(key) {
  if (key === undefined || key === null) throw new TypeError(`key: must be a string, not ${key}`);
  return String(key);
}

function file(path) {
  if (path instanceof URL) return fileURLToPath(path);
  if (typeof path !== "string") throw new TypeError(`the path of a file must be a string or a URL, not ${path}`);
  return path;
}

/** What a call of the addon returns. */
function attempt(call) {
  try {
    return call();
  } catch (error) {
    throw understood(error);
  }
}

function ofFile(path, options) {
  known("Limiter.fromFile", options, ["store", "clock"]);
  const store = options.store === undefined ? undefined : url(options.store);
  return attempt(() => addon.Limiter.fromFile(file(path), store, options.clock));
}

/** A limiter that has its rules: those in Postgres are read first. */
async function followed(limiter) {
  if (limiter.lacksRules) await promised(true, (ticket) => limiter.follow(ticket), nothing);
  return new Limiter(limiter);
}

// Limiters that may have leases to return when the process exits.
const remote = new Set();
let isWatched = false;
const forgotten = new FinalizationRegistry((reference) => remote.delete(reference));

function remember(limiter) {
  if (!isWatched) process.on("exit", closeAll);
  isWatched = true;
  const reference = new WeakRef(limiter);
  remote.add(reference);
  forgotten.register(limiter, reference);
}

function closeAll() {
  for (const reference of remote) {
    try {
      const limiter = reference.deref();
      if (limiter) closeSync(limiter);
    } catch {
      // Leases expire in the store anyway.
    }
  }
}

module.exports = { Limiter, needsOf, headersOf, checkHttp, watchedOf, report };
