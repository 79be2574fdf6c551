// A store for express-rate-limit: its options stay, its counters are kept by this engine, in memory or in Redis.
//
//   rateLimit({ windowMs: 60_000, limit: 100, store: new TollkeeperStore({ store: "redis://127.0.0.1:6379" }) })
"use strict";

const { ConfigError } = require("./errors.js");
const { Limiter } = require("./limiter.js");
const { known } = require("./options.js");

const OPTIONS = ["store", "timeout", "maxKeys", "namespace", "prefix", "algorithm", "onStoreFailure", "lease", "clock"];
/** The limit to count with if the limit is a function of the request: larger than any real one. */
const PLENTY = 1_000_000_000;

/** Counts the requests of each key. A denied request is not counted, so clients that keep retrying are admitted again in time. */
class TollkeeperStore {
  #decrements = false;
  #limit;
  #limiter;
  #options;
  #reservations = new Map();
  #rule;
  #windowMs;

  constructor(options = {}) {
    known("TollkeeperStore", options, OPTIONS);
    const { prefix = "rl:", store = "memory:" } = options;
    this.#options = options;
    // Errors of the store are thrown here: express-rate-limit only logs what `init` throws.
    Limiter.fromRules([], this.#settings);
    /** The prefix of keys in the store. */
    this.prefix = prefix;
    /** Whether each process counts separately. */
    this.localKeys = store.startsWith("memory:");
  }

  /** Called by express-rate-limit with its options. */
  init(options) {
    const { windowMs, limit = options.max } = options;
    const { algorithm = "fixed_window", onStoreFailure, lease } = this.#options;
    if (!Number.isInteger(windowMs) || windowMs < 1) throw new ConfigError(`windowMs: ${windowMs} is not a whole number of milliseconds`);
    this.#windowMs = windowMs;
    // A limit of 0 denies everything, which express-rate-limit does itself.
    this.#limit = Number.isInteger(limit) && limit > 0 ? limit : PLENTY;
    this.#decrements = Boolean(options.skipFailedRequests || options.skipSuccessfulRequests);
    this.#rule = `express-rate-limit:${typeof limit === "number" ? limit : "dynamic"}/${windowMs}ms`;
    const rule = { name: this.#rule, key: "{key}", limit: `${this.#limit}/${windowMs}ms`, algorithm };
    if (onStoreFailure !== undefined) rule.on_store_failure = onStoreFailure;
    if (lease !== undefined) rule.lease = lease;
    this.#limiter = Limiter.fromRules([rule], this.#settings);
  }

  /** Counts a request. */
  async increment(key) {
    const attributes = { key: this.prefix + key };
    if (!this.#decrements) return this.#counted(await this.#limiter.check(attributes));
    const reservation = await this.#limiter.reserve(attributes, { hold: this.#windowMs / 1000 });
    if (reservation.allowed) this.#keep(key, reservation);
    return this.#counted(reservation.verdict);
  }

  /** Refunds the last request, which should not count. */
  async decrement(key) {
    const kept = this.#reservations.get(key);
    const last = kept?.pop();
    if (kept?.length === 0) this.#reservations.delete(key);
    await last?.reservation.settle(0);
  }

  /** The state of a key, without counting. */
  async get(key) {
    const [bucket] = await this.#limiter.inspect(this.#rule, this.prefix + key);
    return bucket && this.#info(bucket.limit - bucket.remaining, bucket.resetAfter);
  }

  /** Resets a key. */
  async resetKey(key) {
    this.#reservations.delete(key);
    await this.#limiter.reset(this.#rule, this.prefix + key);
  }

  /** Returns leased tokens. */
  async shutdown() {
    await this.#limiter.close();
  }

  /** The options for a limiter. */
  get #settings() {
    const { prefix, algorithm, onStoreFailure, lease, ...settings } = this.#options;
    return settings;
  }

  #counted(verdict) {
    const [row] = verdict.rules;
    const hits = row.limit - row.remaining;
    // Denied: one more than the limit. The reset time is the wait, not the end of the window.
    if (!verdict.allowed) return this.#info(Math.max(hits, row.limit) + 1, row.retryAfter ?? row.resetAfter);
    return this.#info(hits, row.resetAfter);
  }

  #info(totalHits, seconds) {
    return { totalHits, resetTime: new Date(Date.now() + Math.ceil(seconds * 1000)) };
  }

  /** Keeps what may be refunded, until its window ends. */
  #keep(key, reservation) {
    const now = Date.now();
    const kept = (this.#reservations.get(key) ?? []).filter(({ until }) => until > now);
    kept.push({ reservation, until: now + this.#windowMs });
    this.#reservations.delete(key);
    this.#reservations.set(key, kept);
    // Least recently used keys come first.
    for (const [oldest, ofOldest] of this.#reservations) {
      if (ofOldest.at(-1).until > now) break;
      this.#reservations.delete(oldest);
    }
  }
}

exports.TollkeeperStore = TollkeeperStore;
