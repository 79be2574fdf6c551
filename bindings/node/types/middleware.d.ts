// What the middleware of all frameworks takes. `R` is what the framework calls a request, `A` what its handlers get.
import type { Attributes, Limiter, LimitLike, Settings, Verdict } from "./index.js";

type MaybePromise<T> = T | Promise<T>;

/** What a key function may return: a text, a number, or a user with an id. Nothing means: not limited by this. */
export type KeyLike = string | number | bigint | { readonly [name: string]: any } | null | undefined | false;

export interface RateLimitOptions<R = any, A extends any[] = any[]> extends Settings {
  /** `"ip"` by default, `"header.x-api-key|ip"`, `"user"`, `"global"`, or a function of the request. */
  by?: string | ((request: R) => MaybePromise<KeyLike>);
  /** The name of the limit in headers and in the store. */
  name?: string;
  /** Paths that are not limited, such as `/healthz` or `/static/*`, or a function of the request. */
  exempt?: readonly string[] | ((request: R) => MaybePromise<boolean>);
  /** What a request costs, or a function of the request. */
  cost?: number | ((request: R) => MaybePromise<number>);
  /** The client's address, if the server does not provide it. */
  address?: (request: R) => string | undefined;
  /**
   * Whether a request counts, by its response: `(request, response) => response.statusCode >= 400` counts failures only. Each is charged
   * before it is handled, and gets its charge back when the response does not count.
   */
  countWhen?: (...about: A) => MaybePromise<boolean>;
  /** Answers a denied request; the status and all headers except `Content-Type` are already set. */
  onDenied?: (...args: any[]) => any;
}

/** Rules of your own, instead of a limit. */
export interface LimiterOptions<R = any, A extends any[] = any[]> {
  limiter: Limiter;
  by?: (request: R) => MaybePromise<KeyLike>;
  /** Returns attributes that the rules use, such as the customer's plan: `(request) => ({ plan: request.user?.plan })`. */
  attributes?: (request: R) => MaybePromise<Attributes>;
  exempt?: RateLimitOptions<R>["exempt"];
  cost?: RateLimitOptions<R>["cost"];
  address?: RateLimitOptions<R>["address"];
  countWhen?: RateLimitOptions<R, A>["countWhen"];
  onDenied?: RateLimitOptions<R>["onDenied"];
}

/** A limit and options as one object. */
export type LimitOptions<R = any, A extends any[] = any[]> = (RateLimitOptions<R, A> & { limit: LimitLike }) | LimiterOptions<R, A>;

export type { Limiter, LimitLike, Verdict };
