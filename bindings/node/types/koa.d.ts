import type { Limiter, LimitLike, LimitOptions, RateLimitOptions, Verdict } from "./middleware.js";

/** A middleware of Koa. */
export interface Middleware<C = any> {
  (context: C, next: () => Promise<any>): Promise<any>;
  /** For `close`, `inspect` and `reset`. */
  readonly limiter: Limiter;
}

/** Limits requests: `app.use(rateLimit("100/min burst 20"))`. */
export function rateLimit<C = any>(limit: LimitLike, options?: RateLimitOptions<C, [context: C]>): Middleware<C>;
export function rateLimit<C = any>(options: LimitOptions<C, [context: C]>): Middleware<C>;
/** The verdict of all limits on a request so far. */
export function verdictOf(context: object): Verdict | undefined;
