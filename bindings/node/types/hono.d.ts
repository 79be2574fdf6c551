import type { Context, MiddlewareHandler } from "hono";
import type { Limiter, LimitLike, LimitOptions, RateLimitOptions, Verdict } from "./middleware.js";

/** A middleware of Hono, with its limiter for `close`, `inspect` and `reset`. */
export type Middleware = MiddlewareHandler & { readonly limiter: Limiter };

/** Limits requests: `app.use(rateLimit("100/min burst 20"))`. */
export function rateLimit(limit: LimitLike, options?: RateLimitOptions<Context, [context: Context]>): Middleware;
export function rateLimit(options: LimitOptions<Context, [context: Context]>): Middleware;
/** The verdict of all limits on a request so far. */
export function verdictOf(context: Context): Verdict | undefined;
