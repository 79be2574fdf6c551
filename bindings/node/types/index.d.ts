// Exact rate limiting in your process. See docs/guide/node.md.

/** `"100/min burst 20"`, or a `Quota`. */
export type Line = string | Quota;
/** One limit, or several that are enforced together, all or nothing. */
export type LimitLike = Line | readonly Line[];
/** The attributes of a request. Numbers and booleans are converted to strings; null and undefined count as absent. */
export type Attributes = Readonly<Record<string, string | number | bigint | boolean | null | undefined>>;
/** Who answered. */
export type Source = "store" | "deny_cache" | "lease" | "local" | "policy" | "exception";
export type Algorithm =
  | "token_bucket"
  | "gcra"
  | "fixed_window"
  | "sliding_window_log"
  | "sliding_window_counter"
  | "leaky_bucket"
  | "concurrency";
export type HeaderStyle =
  | "draft-11"
  | "draft-07"
  | "draft-06"
  | "draft-03"
  | "x-ratelimit-epoch"
  | "x-ratelimit-delta"
  | "none";

/** A rule as in the rules file. */
export interface Rule {
  name: string;
  key: string;
  limit: string | number;
  burst?: number;
  algorithm?: Algorithm;
  scope?: string;
  when?: Record<string, unknown>;
  cost?: number | string | readonly unknown[];
  mode?: string;
  /** For calendar windows (`1000/month`): the time zone, such as `Europe/Berlin`, and the first day. */
  timezone?: string;
  anchor_day?: number;
  headers?: boolean;
  hold?: string;
  lease?: number | string;
  on_store_failure?: "open" | "closed" | "local";
  [field: string]: unknown;
}

/** The options of a limiter, in addition to its rules. */
export interface Settings {
  /** `memory:` (the default: each process counts separately), `redis://`, `redis+cluster://`, `redis+sentinel://`; `rediss` for TLS. */
  store?: string;
  /** The deadline of each call to Redis: seconds, or a string such as `20ms`. */
  timeout?: number | string;
  /** The maximum number of keys in memory. */
  maxKeys?: number;
  /** The prefix of all keys in Redis. */
  namespace?: string;
  /** Addresses or CIDRs of trusted proxies, whose forwarding headers are used. */
  trustedProxies?: readonly string[];
  /** The header in which they report the client's address; `auto` by default. */
  clientAddress?: string;
  /** IPv6 clients are grouped by this many leading bits; 64 by default. */
  ipv6Prefix?: number;
  /** The convention that limit headers follow. */
  headers?: HeaderStyle;
  /** Attributes taken from the request: `{ user_id: "header.x-user-id" }`. */
  identify?: Readonly<Record<string, string>>;
  /** The status of a denied request; 429 by default. */
  denyStatus?: number;
  /** For tests. */
  clock?: ManualClock;
}

/** How a request is decided. */
export interface CheckOptions {
  /** What it costs: 1 by default. 0 peeks. */
  cost?: number;
  /** The names of the rules to apply, if not all. */
  rules?: readonly string[];
}

/** A request in a batch: attributes, or the arguments of `check`. */
export type BatchRequest = Attributes | readonly [attributes: Attributes, options?: CheckOptions];

/** How an exception for a key is made. */
export interface ExceptionOptions {
  /** The attribute that the key is for, where the rule's key has alternatives. */
  by?: string;
  /** How long it is in force: seconds, or a string such as `1h`. Without `duration` and `until` it does not expire. */
  duration?: number | string;
  /** When it ends. */
  until?: Date;
  /** Why, for people. */
  reason?: string;
  /** Who makes it, for people. */
  madeBy?: string;
}

/** An exception in force for a key of a rule. */
export interface KeyException {
  /** The rule's name, or `*` for every rule that uses this key. */
  readonly rule: string;
  readonly key: string;
  /** The attribute that the key is for, if the rule's key has alternatives. */
  readonly by: string | null;
  readonly kind: "block" | "allow" | "grant";
  /** Of a grant. */
  readonly limit: string | null;
  /** Of a grant, if one was given. */
  readonly burst: number | null;
  readonly since: Date;
  /** When it expires; null if it does not expire. */
  readonly until: Date | null;
  readonly reason: string | null;
  readonly madeBy: string | null;
}

/** Rules in Postgres. */
export interface RulesStatus {
  /** The version in force. */
  readonly version: number;
  /** A newer version that was refused, and why. */
  readonly refused: { readonly version: number; readonly problem: string } | null;
  /** Why the database does not answer. */
  readonly unreachable: string | null;
}

/** Decides requests by rules that can change while it runs. Creating one opens no connection and starts no thread. */
export class Limiter {
  private constructor();
  /** From a rules file, as for the service. */
  static fromFile(path: string | URL, options?: { store?: string; clock?: ManualClock }): Promise<Limiter>;
  /** The same, synchronously. */
  static fromFileSync(path: string | URL, options?: { store?: string; clock?: ManualClock }): Limiter;
  /** From code: each rule is an object as in the rules file, a line such as `100/min burst 20 by header.x-api-key|ip`, or a `Quota`. */
  static fromRules(rules: readonly (Rule | Line)[], options?: Settings): Limiter;
  /**
   * With the rules in Postgres: they are read now, and followed while they change. With `snapshot`, a file, the last good ones serve a
   * start while the database is unreachable.
   */
  static fromPostgres(url: string | URL, options?: Settings & { snapshot?: string | URL }): Promise<Limiter>;
  /** Decides a request. */
  check(attributes: Attributes, options?: CheckOptions): Promise<Verdict>;
  /** The same at once, for limits in memory. */
  tryCheck(attributes: Attributes, options?: CheckOptions): Verdict;
  /**
   * Decides several requests, each by itself; the verdicts are in their order. If one is invalid, the call rejects and nothing is
   * charged. `rules` applies to requests without their own `rules`.
   */
  checkMany(requests: Iterable<BatchRequest>, options?: { rules?: readonly string[] }): Promise<Verdict[]>;
  /** Decides a request and holds its slots until `permit.release()`. */
  acquire(attributes: Attributes, options?: CheckOptions): Promise<Permit>;
  /** Decides a request whose cost is an estimate, corrected by `reservation.settle(cost)` within `hold` seconds (600). */
  reserve(attributes: Attributes, options?: CheckOptions & { hold?: number }): Promise<Reservation>;
  /** The state of a rule's buckets for a key, without changing them. */
  inspect(rule: string, key: string): Promise<Bucket[]>;
  /** Resets a rule's buckets for a key; false when there was nothing to reset. */
  reset(rule: string, key: string): Promise<boolean>;
  /** Denies every request of a key, for a while or until lifted. `rule` is a name, or `*` for every rule that uses this key. */
  block(rule: string, key: string, options?: ExceptionOptions): Promise<KeyException>;
  /** Lets every request of a key pass a rule, without charging it. */
  allow(rule: string, key: string, options?: ExceptionOptions): Promise<KeyException>;
  /** Gives a key its own limit instead of the rule's. Usage is carried over. */
  grant(rule: string, key: string, limit: string, options?: ExceptionOptions & { burst?: number }): Promise<KeyException>;
  /** Ends the exception of a rule, or of `*`, and a key. Resolves to it, or to null if there was none. */
  lift(rule: string, key: string, options?: { by?: string }): Promise<KeyException | null>;
  /** The exceptions in force. */
  exceptions(): Promise<KeyException[]>;
  /** Connects now rather than with the first request, and rejects with any error of the store. */
  connect(): Promise<void>;
  /** Returns leased tokens to the store. Done automatically when the process exits. */
  close(): Promise<void>;
  /** Replaces the rules; requests in flight finish with the old ones. Tokens missing from a bucket stay missing. */
  replaceRules(rules: readonly (Rule | Line)[]): void;
  /** Replaces the rules with those in a file. */
  replaceRulesFromFile(path: string | URL): void;
  /** The rules in force, as in a rules file. */
  readonly rules: Rule[];
  /** Of rules in Postgres; otherwise null. */
  readonly rulesStatus: RulesStatus | null;
  /** Whether answers may come from a server. */
  readonly isRemote: boolean;
  /** Whether it trusts the forwarding headers of some proxies. */
  readonly trustsProxies: boolean;
}

/** The answer for a request. */
export class Verdict {
  private constructor();
  /** Whether the request may pass. */
  readonly allowed: boolean;
  /** The name of the rule that denies, or null. */
  readonly limiting: string | null;
  /** Seconds until the same request passes: 0 when it passes, null when it never can. */
  readonly retryAfter: number | null;
  /** Seconds that an admitted request has to wait for its turn: `leaky_bucket` only. */
  readonly delay: number;
  /** Who answered. */
  readonly source: Source;
  /** Denied because the store could not answer, not because a limit was reached. */
  readonly unavailable: boolean;
  /** One per rule that applied, in their order. */
  readonly rules: RuleDecision[];
  /** The soft limits (`mode: annotate`) that the request is over, in the order of the rules. */
  readonly annotations: Annotation[];
  /** The limit headers, and `retry-after` if waiting helps; names in lower case. */
  readonly headers: Record<string, string>;
  toJSON(): object;
}

/** A soft limit that a request is over: it passed, and your application may answer differently. */
export interface Annotation {
  readonly rule: string;
  /** The burst of a bucket, or N. */
  readonly limit: number;
  /** How much of the request's cost did not fit. */
  readonly overBy: number;
  /** Seconds until the request would have fit; null if it never would. */
  readonly retryAfter: number | null;
}

/** What one rule says. */
export interface RuleDecision {
  readonly rule: string;
  readonly scope: string | null;
  readonly key: string;
  /** Whether this rule alone lets it pass. */
  readonly allowed: boolean;
  /** Whether the rule only counts, and never denies. */
  readonly shadow: boolean;
  /** The burst of a bucket, or N. */
  readonly limit: number;
  /** What is left after this request. */
  readonly remaining: number;
  readonly retryAfter: number | null;
  /** Seconds until the bucket is full again. */
  readonly resetAfter: number;
  readonly delay: number;
  readonly source: Source;
  /** If an exception for this key is in force. */
  readonly exception: KeyException["kind"] | null;
}

/** The state of a bucket. */
export interface Bucket {
  readonly key: string;
  readonly allowed: boolean;
  readonly limit: number;
  readonly remaining: number;
  readonly retryAfter: number | null;
  readonly resetAfter: number;
}

/** The slots of a request: `release` them, or use `await using` where the runtime has it. */
export class Permit {
  private constructor();
  readonly verdict: Verdict;
  readonly allowed: boolean;
  /** Releases the slots. Calling it again does nothing. */
  release(): void;
}

/** An estimate that was charged, until `settle` gives the actual cost. Without that, it stays charged. */
export class Reservation {
  private constructor();
  readonly verdict: Verdict;
  readonly allowed: boolean;
  /** Corrects the estimate to the actual usage: a cost, attributes that carry costs, or both. */
  settle(cost?: number | null, attributes?: Attributes): Promise<Settlement[]>;
  /** Leaves the estimate charged, and releases slots. */
  release(): void;
}

/** How one rule's estimate was settled. */
export interface Settlement {
  readonly rule: string;
  readonly key: string;
  readonly cost: number;
  readonly reserved: number;
  readonly refunded: number;
  readonly remaining: number;
  readonly resetAfter: number;
}

/** An algorithm and its numbers: `new Quota("10/s burst 20")`. */
export class Quota {
  constructor(text: string);
  static perSecond(count: number, options?: { burst?: number; algorithm?: Algorithm }): Quota;
  static perMinute(count: number, options?: { burst?: number; algorithm?: Algorithm }): Quota;
  static perHour(count: number, options?: { burst?: number; algorithm?: Algorithm }): Quota;
  static perDay(count: number, options?: { burst?: number; algorithm?: Algorithm }): Quota;
  /** At most this many at the same time; unreleased slots expire after `hold`. */
  static concurrent(count: number, options?: { hold?: string }): Quota;
  readonly algorithm: Algorithm;
  /** N of `N per period`. */
  readonly count: number;
  /** The period in seconds. */
  readonly period: number;
  /** The most that can pass at once: the burst of a bucket, or N. */
  readonly limit: number;
  toString(): string;
}

/** A key by its kind: `"1"` and `1` are two keys. */
export type Key = string | number | Uint8Array;

/** Limits each key by the same quota, in this process: `keyed("10/s burst 20").check(key)`. */
export function keyed(quota: Line, options?: { maxKeys?: number; onFull?: "local" | "open" | "closed"; clock?: ManualClock }): Keyed;

/** One quota for every key; `keyed` makes one. */
export class Keyed {
  constructor(quota: Line, options?: { maxKeys?: number; onFull?: "local" | "open" | "closed"; clock?: ManualClock });
  /** Decides a request; cost 0 peeks. */
  check(key: Key, cost?: number): Decision;
  /** The answer to a request of cost 1 now; nothing is charged. */
  peek(key: Key): Decision;
  /** Resets a key; false when there was nothing to reset. */
  reset(key: Key): boolean;
  /** Releases the slot of an admitted request: for `concurrency`. False when it was already free. */
  release(key: Key, decision: Decision): boolean;
  /** The number of keys kept, some of which may be idle by now. */
  readonly size: number;
  toString(): string;
}

/** The answer for one key. */
export class Decision {
  private constructor();
  readonly allowed: boolean;
  /** The burst of a bucket, or N. */
  readonly limit: number;
  /** What is left after this decision. */
  readonly remaining: number;
  /** Seconds until the same request passes: 0 when it passes, null when it never can. */
  readonly retryAfter: number | null;
  /** Seconds until the key is as if never used. */
  readonly resetAfter: number;
  /** Seconds that an admitted request has to wait for its turn: `leaky_bucket` only. */
  readonly delay: number;
}

/** A clock that stands still until it is moved, for tests. */
export class ManualClock {
  /** Seconds since the epoch. */
  constructor(now?: number);
  /** Moves on by this many seconds. */
  advance(seconds: number): void;
  /** Sets the time: seconds since the epoch. */
  set(now: number): void;
  /** Sets the time: whole microseconds since the epoch. */
  setUs(now: number): void;
  now(): number;
}

/** Anything that this package throws. A denial is not an error. */
export class TollkeeperError extends Error {
  readonly code: string;
}
/** An invalid rule, quota or limit: `ERR_TOLLKEEPER_RULE`. */
export class RuleError extends TollkeeperError {}
/** An invalid file or setting: `ERR_TOLLKEEPER_CONFIG`. */
export class ConfigError extends TollkeeperError {}
/** An attribute that should hold a cost is not a number: `ERR_TOLLKEEPER_COST`. */
export class CostError extends TollkeeperError {}
/** A request that cannot be read, or that identifies its client in two ways: `ERR_TOLLKEEPER_REQUEST`. */
export class RequestError extends TollkeeperError {}
/** A store that cannot be used: `ERR_TOLLKEEPER_STORE`. */
export class StoreError extends TollkeeperError {}
/** A request that was neither allowed nor denied, because too many were waiting for a decision: `ERR_TOLLKEEPER_OVERLOADED`. */
export class OverloadedError extends TollkeeperError {
  /** Of `checkMany`: the verdicts on the others, and null for those that were not decided. */
  readonly verdicts?: (Verdict | null)[];
}
/** A limit by address, but the server provides no address for the request: `ERR_TOLLKEEPER_ADDRESS`. */
export class AddressError extends TollkeeperError {}
/** An invalid call, such as settling twice: `ERR_TOLLKEEPER_USAGE`. */
export class UsageError extends TollkeeperError {}
