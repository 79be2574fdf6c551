import { type CanActivate, type ExecutionContext, HttpException } from "@nestjs/common";
import type { Limiter, LimitLike, LimitOptions, RateLimitOptions, Verdict } from "./middleware.js";

/** What handlers get. */
type Handled = [request: any, response: any];

/** Limits requests: `app.useGlobalGuards(new RateLimitGuard("100/min burst 20"))`. */
export class RateLimitGuard implements CanActivate {
  constructor(limit: LimitLike, options?: RateLimitOptions<any, Handled>);
  constructor(options: LimitOptions<any, Handled>);
  /** For `close`, `inspect` and `reset`. */
  readonly limiter: Limiter;
  /** Where the request and the response are. Override it for GraphQL and others. */
  getRequestResponse(context: ExecutionContext): { req: any; res: any };
  canActivate(context: ExecutionContext): Promise<boolean>;
}

/** Limits a controller or a handler: `@RateLimit("5/min")`. */
export function RateLimit(limit: LimitLike, options?: RateLimitOptions<any, Handled>): ClassDecorator & MethodDecorator;

/** Exempts a controller or a handler from all limits; false on a handler limits it even if its controller is exempt. */
export function SkipRateLimit(skip?: boolean): ClassDecorator & MethodDecorator;

/** A denied request, for exception filters. */
export class RateLimitExceeded extends HttpException {
  readonly verdict: Verdict | undefined;
}

/** The verdict of all limits on a request so far. */
export function verdictOf(request: object): Verdict | undefined;
