// NestJS on Express and on Fastify. Decorators are applied as TypeScript would.
import "reflect-metadata";
import assert from "node:assert/strict";
import { test } from "node:test";
import { Catch, Controller, Get, HttpCode, Module, Post, UnauthorizedException } from "@nestjs/common";
import { APP_GUARD, NestFactory } from "@nestjs/core";
import { ExpressAdapter } from "@nestjs/platform-express";
import { FastifyAdapter } from "@nestjs/platform-fastify";
import { RateLimit, RateLimitExceeded, RateLimitGuard, SkipRateLimit, verdictOf } from "tollkeeper/nestjs";
import { conforms } from "./web.mjs";
import { serving, statuses } from "./world.mjs";

function decorate(decorators, Class, name) {
  const descriptor = Object.getOwnPropertyDescriptor(Class.prototype, name);
  for (const decorator of decorators.reverse()) decorator(Class.prototype, name, descriptor);
}

async function application(adapter, { all, login, slow, fails }, prepare = () => {}) {
  class Home {
    home() {
      return "home";
    }
    login() {
      if (fails?.shift()) throw new UnauthorizedException();
      return "in";
    }
    slow() {
      return slow.then(() => "slow");
    }
  }
  decorate([Get("/")], Home, "home");
  decorate([Post("/login"), HttpCode(200), ...(login ? [RateLimit(...login)] : [])], Home, "login");
  decorate([Get("/slow")], Home, "slow");
  Controller()(Home);
  class App {}
  Module({ controllers: [Home] })(App);
  const app = await NestFactory.create(App, adapter(), { logger: false });
  if (all) app.useGlobalGuards(new RateLimitGuard(...all));
  prepare(app);
  await app.listen(0, "127.0.0.1");
  return app.getHttpServer();
}

/** Nest has exception filters instead of `onDenied`. */
const asArguments = ([limit, options]) => {
  const { onDenied, ...rest } = options ?? {};
  return options ? [limit, rest] : [limit];
};

class Denied {
  catch(error, host) {
    const response = host.switchToHttp().getResponse();
    const text = `slow down: ${error.verdict.retryAfter > 0}`;
    if (response.send && response.code) response.code(error.getStatus()).type("text/plain").send(text);
    else response.status(error.getStatus()).type("text").send(text);
  }
}
Catch(RateLimitExceeded)(Denied);

for (const [name, adapter] of [["Nest on Express", () => new ExpressAdapter()], ["Nest on Fastify", () => new FastifyAdapter()]]) {
  conforms(name, ({ all, ...rest }) => {
    const filters = all?.[1] && "onDenied" in all[1];
    const limits = { all: all && asArguments(all), ...rest };
    return application(adapter, limits, (app) => filters && app.useGlobalFilters(new Denied()));
  });

  test(`${name}: only failures count`, async () => {
    const countWhen = (request, response) => response.statusCode === 401;
    const fails = [false, false, false, true, false, true];
    await serving(
      () => application(adapter, { login: ["2/min", { countWhen }], fails }),
      async (url) => {
        const found = await statuses(`${url}/login`, 7, { method: "POST" });
        assert.deepEqual(found, [200, 200, 200, 401, 200, 401, 429]);
      },
    );
  });

  // A global guard could only leave out paths.
  test(`${name}: handlers and controllers are skipped`, async () => {
    class Open {
      home() {
        return "home";
      }
      login() {
        return "in";
      }
    }
    decorate([Get("/")], Open, "home");
    decorate([Post("/login"), HttpCode(200), SkipRateLimit(false)], Open, "login");
    SkipRateLimit()(Open);
    Controller()(Open);
    class Closed {
      home() {
        return "home";
      }
      open() {
        return "open";
      }
    }
    decorate([Get("/")], Closed, "home");
    decorate([Get("/open"), SkipRateLimit()], Closed, "open");
    RateLimit("1/min")(Closed);
    Controller("/closed")(Closed);
    class App {}
    Module({ controllers: [Open, Closed], providers: [{ provide: APP_GUARD, useValue: new RateLimitGuard("1/min") }] })(App);
    const app = await NestFactory.create(App, adapter(), { logger: false });
    await app.listen(0, "127.0.0.1");
    await serving(
      () => app.getHttpServer(),
      async (url) => {
        assert.deepEqual(await statuses(url, 3), [200, 200, 200]);
        assert.deepEqual(await statuses(`${url}/login`, 2, { method: "POST" }), [200, 429]);
        assert.deepEqual(await statuses(`${url}/closed/open`, 3), [200, 200, 200]);
        assert.deepEqual(await statuses(`${url}/closed`, 1), [429]);
      },
    );
  });

  test(`${name}: a decorator names its limit after the handler`, async () => {
    await serving(
      () => application(adapter, { login: ["1/min"] }),
      async (url) => {
        const response = await fetch(`${url}/login`, { method: "POST" });
        assert.equal(response.headers.get("ratelimit-policy"), '"Home.login";q=1;w=60');
      },
    );
  });
}

test("Nest: what is no HTTP request is refused, not let through", async () => {
  const guard = new RateLimitGuard("1/min");
  await assert.rejects(guard.canActivate({ getType: () => "rpc" }), /rpc has no HTTP request to limit; override getRequestResponse/);
  assert.equal(verdictOf({}), undefined);
});
