import type { FastifyPluginCallback, FastifyReply, FastifyRequest, onRequestHookHandler } from "fastify";
import type { Limiter, LimiterOptions, LimitLike, LimitOptions, RateLimitOptions, Verdict } from "./middleware.js";

/** What handlers get. */
type Handled = [request: FastifyRequest, reply: FastifyReply];

declare module "fastify" {
  interface FastifyContextConfig {
    /** The limit of this route; false for none. */
    rateLimit?: LimitLike | LimitOptions<FastifyRequest, Handled> | false;
  }
  interface FastifyInstance {
    /** The limiter of all requests, if there is one. */
    readonly rateLimiter: Limiter | null;
  }
}

/** The options of the plugin. Without a limit it is there for those of routes. */
export type RateLimitPluginOptions = RateLimitOptions<FastifyRequest, Handled> & {
  limit?: LimitLike;
  limiter?: Limiter;
  attributes?: LimiterOptions<FastifyRequest, Handled>["attributes"];
};

/** The plugin: `await app.register(rateLimit, { limit: "100/min burst 20" })`. */
export const rateLimit: FastifyPluginCallback<RateLimitPluginOptions>;
/** A hook of a route, with its limiter for `close`, `inspect` and `reset`. */
export type Hook = onRequestHookHandler & { readonly limiter: Limiter };

/** A limit for one route: `{ onRequest: limited("5/min") }`. */
export function limited(limit: LimitLike, options?: RateLimitOptions<FastifyRequest, Handled>): Hook;
export function limited(options: LimitOptions<FastifyRequest, Handled>): Hook;
/** The verdict of all limits on a request so far. */
export function verdictOf(request: FastifyRequest): Verdict | undefined;
