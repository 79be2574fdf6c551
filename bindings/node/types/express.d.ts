import type { Limiter, LimitLike, LimitOptions, RateLimitOptions, Verdict } from "./middleware.js";

/** A middleware of Express 4 or 5. */
export interface Middleware<R = any> {
  (request: R, response: any, next: (error?: any) => void): void;
  /** For `close`, `inspect` and `reset`. */
  readonly limiter: Limiter;
}

/** Limits requests: `app.use(rateLimit("100/min burst 20"))`, or on a route. */
export function rateLimit<R = any>(limit: LimitLike, options?: RateLimitOptions<R, [request: R, response: any]>): Middleware<R>;
export function rateLimit<R = any>(options: LimitOptions<R, [request: R, response: any]>): Middleware<R>;
/** The verdict of all limits on a request so far. */
export function verdictOf(request: object): Verdict | undefined;
