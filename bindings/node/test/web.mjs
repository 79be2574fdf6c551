// What every framework has to do, as one list of tests over an application of each. An application is made of limits: it limits
// `/` by the first, `/login` by the second too, and answers "home" and "in".
import assert from "node:assert/strict";
import { connect } from "node:net";
import { once } from "node:events";
import { test } from "node:test";
import { Limiter } from "tollkeeper";
import { Redis, namespace, serving, statuses } from "./world.mjs";

/**
 * Tests a framework. `listen(limits)` starts an application: `limits.all` and `limits.login` are the arguments of a limit, and
 * `limits.slow`, a promise, is waited for by `/slow`.
 */
export function conforms(framework, listen) {
  const application = (limits, use) => serving(() => listen(limits), use);
  const it = (name, body) => test(`${framework}: ${name}`, body);

  it("passed requests get limit headers, denied ones a problem document", () =>
    application({ all: ["2/min"] }, async (url) => {
      const passed = await fetch(url);
      assert.deepEqual([passed.status, await passed.text()], [200, "home"]);
      assert.match(passed.headers.get("ratelimit"), /";r=1;t=30$/);
      assert.match(passed.headers.get("ratelimit-policy"), /";q=2;w=60$/);
      assert.equal(passed.headers.get("retry-after"), null);
      await fetch(url);
      const denied = await fetch(url);
      assert.equal(denied.status, 429);
      assert.match(denied.headers.get("content-type"), /^application\/problem\+json/);
      const wait = Number(denied.headers.get("retry-after"));
      assert(wait > 0 && wait <= 30, `retry-after ${wait}`);
      assert.match(denied.headers.get("ratelimit"), /";r=0;t=/);
      const problem = await denied.json();
      assert.equal(problem.type, "https://iana.org/assignments/http-problem-types#quota-exceeded");
      assert.equal(problem.status, 429);
      assert.equal(problem["violated-policies"].length, 1);
    }));

  it("by a header, else by address", () =>
    application({ all: ["1/min", { by: "header.x-api-key|ip" }] }, async (url) => {
      const as = (key) => ({ headers: { "x-api-key": key } });
      assert.deepEqual(await statuses(url, 2, as("a")), [200, 429]);
      assert.deepEqual(await statuses(url, 2, as("b")), [200, 429]);
      assert.deepEqual(await statuses(url, 2), [200, 429]);
    }));

  it("a request that names its client twice is refused", () =>
    application({ all: ["100/min", { by: "header.x-api-key" }] }, async (url) => {
      const { hostname, port } = new URL(url);
      const socket = connect(port, hostname);
      socket.write("GET / HTTP/1.1\r\nhost: x\r\nx-api-key: a\r\nx-api-key: b\r\nconnection: close\r\n\r\n");
      const [answer] = await once(socket, "data");
      socket.destroy();
      assert.match(String(answer), /^HTTP\/1.1 400 [^]*header\.x-api-key/);
    }));

  it("by functions, sync and async; nothing means not limited", () =>
    application({ all: ["1/min", { by: async () => undefined }], login: ["1/min", { by: () => ({ id: 7 }) }] }, async (url) => {
      assert.deepEqual(await statuses(url, 3), [200, 200, 200]);
      assert.deepEqual(await statuses(`${url}/login`, 2, { method: "POST" }), [200, 429]);
    }));

  it("a function that fails is the application's error, and nobody passes", () =>
    application({ all: ["1/min", { by: async () => Promise.reject(new Error("no")) }] }, async (url) => {
      assert.deepEqual(await statuses(url, 1), [500]);
    }));

  it("limits of a layer and of a route are reported in one set of headers", () =>
    application({ all: ["100/min", { name: "all" }], login: ["1/min", { name: "login" }] }, async (url) => {
      const login = () => fetch(`${url}/login`, { method: "POST" });
      const passed = await login();
      assert.deepEqual([passed.status, await passed.text()], [200, "in"]);
      assert.equal(passed.headers.get("ratelimit-policy"), '"all";q=100;w=60,"login";q=1;w=60');
      const denied = await login();
      assert.equal(denied.status, 429);
      assert.equal(denied.headers.get("ratelimit-policy"), '"all";q=100;w=60,"login";q=1;w=60');
      assert.deepEqual((await denied.json())["violated-policies"], ["login"]);
      assert.deepEqual(await statuses(url, 1), [200]);
    }));

  // A route with another style than the middleware had the headers of both. If it had no style, those of the middleware were left with
  // values of the default, which their readers do not understand.
  it("layers with different styles of headers are written once, in one", async () => {
    const names = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
    const delta = { headers: "x-ratelimit-delta" };
    const own = { onDenied: limits.json[framework.split(" ")[0]] };
    const written = ({ headers }) => [...headers.keys()].filter((name) => name.includes("ratelimit"));
    for (const [outer, inner] of [[{}, delta], [delta, {}], [{ headers: "draft-06" }, delta], [{}, { ...delta, ...own }]]) {
      await application({ all: ["9/min", outer], login: ["1/min", inner] }, async (url) => {
        const answers = [await fetch(`${url}/login`, { method: "POST" }), await fetch(`${url}/login`, { method: "POST" })];
        assert.deepEqual(answers.map(({ status }) => status), [200, 429]);
        for (const answer of answers) {
          assert.deepEqual(written(answer).sort(), names);
          assert.equal(answer.headers.get("x-ratelimit-limit"), "1");
        }
      });
    }
    await application({ all: ["9/min", delta], login: ["1/min", { headers: "draft-07" }] }, async (url) => {
      const passed = await fetch(`${url}/login`, { method: "POST" });
      assert.deepEqual([written(passed).length, passed.headers.get("ratelimit-policy")], [2, "9;w=60, 1;w=60"]);
    });
    await application({ all: ["9/min"], login: ["1/min", { headers: "none" }] }, async (url) => {
      const [passed, denied] = [await fetch(`${url}/login`, { method: "POST" }), await fetch(`${url}/login`, { method: "POST" })];
      assert.deepEqual([written(passed), written(denied), denied.headers.get("retry-after")], [[], [], "60"]);
    });
  });

  it("several limits hold together, all or nothing", () =>
    application({ all: [["1/min", "100/h"], { name: "both" }] }, async (url) => {
      await statuses(url, 3);
      const denied = await fetch(url);
      assert.equal(denied.status, 429);
      assert.match(denied.headers.get("ratelimit"), /"both-2";r=99;/);
    }));

  it("forwarding headers are believed of trusted proxies only", async () => {
    const from = (address) => ({ headers: { "x-forwarded-for": address } });
    await application({ all: ["1/min"] }, async (url) => {
      assert.deepEqual([...(await statuses(url, 1, from("1.1.1.1"))), ...(await statuses(url, 1, from("2.2.2.2")))], [200, 429]);
    });
    await application({ all: ["1/min", { trustedProxies: ["127.0.0.1"] }] }, async (url) => {
      assert.deepEqual([...(await statuses(url, 1, from("1.1.1.1"))), ...(await statuses(url, 2, from("2.2.2.2")))], [200, 200, 429]);
    });
  });

  it("the rules of a limiter, by path and method, with an answer of their own", async () => {
    const limiter = Limiter.fromRules([
      { name: "writes", key: "{ip}", limit: "1/min", when: { method: "POST", path: "/login" } },
      { name: "teapot", key: "{ip}", limit: "1/min", when: { method: "GET", path: "/" }, deny: { status: 418, body: '{"short":"and stout"}', content_type: "application/json" } },
    ]);
    await application({ all: [{ limiter }] }, async (url) => {
      assert.deepEqual(await statuses(`${url}/login`, 2, { method: "POST" }), [200, 429]);
      assert.deepEqual(await statuses(url, 1), [200]);
      const denied = await fetch(url);
      assert.deepEqual([denied.status, await denied.json()], [418, { short: "and stout" }]);
      assert(denied.headers.get("retry-after"));
    });
  });

  it("costs, exemptions, other headers and another status", () =>
    application({ all: ["10/min", { cost: () => 6, exempt: ["/login"], headers: "x-ratelimit-delta", denyStatus: 503 }] }, async (url) => {
      assert.deepEqual(await statuses(`${url}/login`, 3, { method: "POST" }), [200, 200, 200]);
      const passed = await fetch(url);
      assert.deepEqual([passed.headers.get("x-ratelimit-limit"), passed.headers.get("x-ratelimit-remaining")], ["10", "4"]);
      assert.deepEqual(await statuses(url, 1), [503]);
    }));

  // A promise is true, so an async exemption exempted everybody.
  it("exemptions and costs may be async", () =>
    application({ all: ["4/min", { exempt: async () => false, cost: async () => 3 }], login: ["1/min", { exempt: async () => true }] }, async (url) => {
      assert.deepEqual(await statuses(url, 2), [200, 429]);
      assert.deepEqual(await statuses(`${url}/login`, 1, { method: "POST" }), [429]);
    }));

  // The path was compared as it is, star included, so that everything below it was limited.
  it("all that is below a path may be exempt", async () => {
    await application({ all: ["1/min", { exempt: ["/*"] }] }, async (url) => assert.deepEqual(await statuses(url, 3), [200, 200, 200]));
    await application({ all: ["1/min", { exempt: ["/login/*"] }] }, async (url) => {
      assert.deepEqual(await statuses(`${url}/login`, 2, { method: "POST" }), [200, 429]);
    });
  });

  // Rules `when: { plan: "pro" }` were for callers of `check`: middleware could only be told a key.
  it("what the application knows of a client chooses the rules", async () => {
    const key = "{customer}";
    const rules = [{ name: "free", when: { plan: "free" }, key, limit: "1/min" }, { name: "pro", when: { plan: "pro" }, key, limit: "3/min" }];
    const attributes = (request) => {
      const plan = header(framework, request, "x-plan");
      return { plan, customer: plan && "acme" };
    };
    for (const one of [attributes, async (request) => attributes(request)]) {
      await application({ all: [{ limiter: Limiter.fromRules(rules), attributes: one }] }, async (url) => {
        for (const [plan, found] of [["free", [200, 429, 429, 429]], ["pro", [200, 200, 200, 429]]]) {
          assert.deepEqual(await statuses(url, 4, { headers: { "x-plan": plan } }), found);
        }
        assert.deepEqual(await statuses(url, 4), [200, 200, 200, 200]);
      });
    }
  });

  it("slots are held until the response is over", async () => {
    let finish;
    const slow = new Promise((resolve) => (finish = resolve));
    await application({ all: ["1 algorithm concurrency hold 60s"], slow }, async (url) => {
      const first = fetch(`${url}/slow`);
      let status;
      // The first one may arrive after the second: ask until it holds the slot.
      for (let attempt = 0; attempt < 500 && status !== 429; attempt++) [status] = await statuses(url, 1);
      assert.equal(status, 429);
      finish();
      assert.equal(await (await first).text(), "slow");
      for (let attempt = 0; attempt < 500 && status !== 200; attempt++) [status] = await statuses(url, 1);
      assert.equal(status, 200);
    });
  });

  it("requests of a leaky bucket wait for their turn", () =>
    application({ all: ["20/s burst 3 algorithm leaky_bucket"] }, async (url) => {
      const found = await Promise.all(Array.from({ length: 3 }, () => fetch(url).then(({ status }) => status)));
      assert.deepEqual(found, [200, 200, 200]);
    }));

  it("an exact total on Redis, and no failure when it is killed", async (t) => {
    const redis = await Redis.start();
    t.after(() => redis.kill());
    const settings = { store: redis.url, namespace: namespace(), timeout: 2, by: "header.x-user|ip" };
    await application({ all: ["50/day", settings], login: ["5/day", settings] }, async (url) => {
      const found = await Promise.all(Array.from({ length: 80 }, () => statuses(url, 1)));
      assert.equal(found.flat().filter((status) => status === 200).length, 50);
      await redis.kill();
      // `on_store_failure: local`, the default: this process decides by itself.
      assert.deepEqual(await statuses(url, 1, { headers: { "x-user": "other" } }), [200]);
    });
  });

  it("a denial in the application's own words", () =>
    application({ all: ["1/min", { onDenied: limits.onDenied[framework.split(" ")[0]] }] }, async (url) => {
      await statuses(url, 1);
      const denied = await fetch(url);
      assert.deepEqual([denied.status, await denied.text()], [429, "slow down: true"]);
      assert(denied.headers.get("retry-after"));
    }));

  // Nest's guards are for its routes, and its errors have filters: see nestjs.test.mjs.
  if (framework.startsWith("Nest")) return;

  it("only responses that fail count", async (t) => {
    const redis = await Redis.start();
    t.after(() => redis.kill());
    for (const settings of [{}, { store: redis.url, namespace: namespace(), timeout: 5 }]) {
      const countWhen = counting(framework, (status) => status >= 400);
      await application({ all: ["2/h", { countWhen, ...settings }] }, async (url) => {
        assert.deepEqual(await statuses(url, 4), [200, 200, 200, 200]);
        assert.deepEqual(await statuses(`${url}/nowhere`, 1), [404]);
        assert.deepEqual(await statuses(url, 2), [200, 200]);
        assert.deepEqual(await statuses(`${url}/nowhere`, 2), [404, 429]);
        const denied = await fetch(url);
        assert.equal(denied.status, 429);
        assert(Number(denied.headers.get("retry-after")) > 0);
      });
    }
  });

  // Counting failures after the fact lets as many guesses pass as fit before the first one has failed.
  it("many at the same time do not pass together", async () => {
    let finish;
    const slow = new Promise((resolve) => (finish = resolve));
    const countWhen = counting(framework, async () => true);
    await application({ all: ["5/h", { countWhen }], slow }, async (url) => {
      let denied = 0;
      const attempts = Array.from({ length: 100 }, async () => {
        const { status } = await fetch(`${url}/slow`);
        if (status === 429 && ++denied === 95) finish();
        return status;
      });
      const found = (await Promise.all(attempts)).sort();
      assert.deepEqual(found, [...Array(5).fill(200), ...Array(95).fill(429)]);
    });
  });

  // Otherwise a guess would cost nothing: close the connection before it fails. It was given back when the handler ended after all.
  it("a client that disconnects before the response is counted, even if the handler goes on", async (t) => {
    let finish;
    const slow = new Promise((resolve) => (finish = resolve));
    const countWhen = counting(framework, () => false);
    await application({ all: ["2/h", { countWhen }], slow }, async (url) => {
      for (let attempt = 0; attempt < 2; attempt++) {
        const leaving = new AbortController();
        const asked = fetch(`${url}/slow`, { signal: leaving.signal }).catch(() => "left");
        await new Promise((resolve) => setTimeout(resolve, 100));
        leaving.abort();
        assert.equal(await asked, "left");
      }
      await new Promise((resolve) => setTimeout(resolve, 50));
      finish();
      await new Promise((resolve) => setTimeout(resolve, 50));
      assert.deepEqual(await statuses(url, 1), [429]);
    });
  });

  // What has no text, such as a symbol, ended the process while it was reported.
  it("a countWhen that fails is reported once, and its requests count", async (t) => {
    const warnings = [];
    const listen = (warning) => warnings.push(warning);
    process.on("warning", listen);
    t.after(() => process.off("warning", listen));
    for (const [thrown, shown] of [[new Error("a bug"), /: Error: a bug/], [Symbol("a bug"), /: Symbol\(a bug\)/], [Object.create(null), /: \[Object/]]) {
      for (const countWhen of [() => { throw thrown; }, async () => { throw thrown; }]) {
        await application({ all: ["2/h", { countWhen }] }, async (url) => {
          assert.deepEqual(await statuses(url, 3), [200, 200, 429]);
        });
        await new Promise(setImmediate);
        const [warning, ...others] = warnings.splice(0);
        assert.equal(warning.code, "TOLLKEEPER_SETTING");
        assert.match(warning.message, /^countWhen failed, so requests count: /);
        assert.match(warning.message, shown);
        assert.deepEqual(others, []);
      }
    }
  });

  // A promise that is rejected with nothing is no failure to most frameworks: the request passed.
  it("an onDenied that fails lets nobody pass", async () => {
    const rejects = (error) => ({ then: (_, failed) => void setImmediate(failed, error) });
    const broken = [() => { throw new Error("a bug"); }, async () => Promise.reject(new Error("a bug")), async () => Promise.reject(), () => rejects(new Error("a bug"))];
    for (const onDenied of broken) {
      await application({ all: ["1/h", { onDenied }] }, async (url) => {
        assert.deepEqual(await statuses(url, 3), [200, 500, 500], String(onDenied));
      });
    }
  });

  it("a key, a cost or an exemption that fails with nothing lets nobody pass", async () => {
    const nothing = async () => Promise.reject();
    for (const option of ["by", "cost", "exempt"]) {
      await application({ all: ["9/h", { [option]: nothing }] }, async (url) => {
        assert.deepEqual(await statuses(url, 1), [500], option);
      });
    }
  });

  // A client that sent its key twice got a 500: `onDenied` was called without a verdict.
  it("a request that is refused undecided is no denial", () =>
    application({ all: ["1/h", { by: "header.x-api-key", onDenied: limits.onDenied[framework.split(" ")[0]] }] }, async (url) => {
      const { hostname, port } = new URL(url);
      const socket = connect(port, hostname);
      socket.write("GET / HTTP/1.1\r\nhost: x\r\nx-api-key: a\r\nx-api-key: b\r\nconnection: close\r\n\r\n");
      const [answer] = await once(socket, "data");
      socket.destroy();
      assert.match(String(answer), /^HTTP\/1.1 400 [^]*problem\+json/);
    }));

  // It was announced as a problem document.
  it("an answer of the application has a type of its own", () =>
    application({ all: ["1/h", { onDenied: limits.json[framework.split(" ")[0]] }] }, async (url) => {
      await statuses(url, 1);
      const denied = await fetch(url);
      assert.equal(denied.status, 429);
      assert.match(denied.headers.get("content-type"), /^application\/json/);
      assert.deepEqual(await denied.json(), { wait: true });
    }));
}

/** Which statuses count, in the words of each framework. */
function counting(framework, counts) {
  const words = {
    Express: (request, response) => counts(response.statusCode),
    Fastify: (request, reply) => counts(reply.statusCode),
    Koa: (context) => counts(context.status),
    Hono: (context) => counts(context.res.status),
  };
  return words[framework.split(" ")[0]];
}

/** A header of a request. */
function header(framework, request, name) {
  const words = { Koa: () => request.req.headers[name], Hono: () => request.req.header(name) };
  return (words[framework] ?? (() => request.headers[name]))();
}

/** How each framework answers by itself. */
const limits = {
  onDenied: {
    Express: (request, response, verdict) => response.type("text").send(`slow down: ${verdict.retryAfter > 0}`),
    Fastify: (request, reply, verdict) => reply.type("text/plain").send(`slow down: ${verdict.retryAfter > 0}`),
    Koa: (context, verdict) => (context.body = `slow down: ${verdict.retryAfter > 0}`),
    Hono: (context, verdict) => context.text(`slow down: ${verdict.retryAfter > 0}`),
  },
  json: {
    Express: (request, response, verdict) => response.json({ wait: verdict.retryAfter > 0 }),
    Fastify: (request, reply, verdict) => reply.send({ wait: verdict.retryAfter > 0 }),
    Koa: (context, verdict) => (context.body = { wait: verdict.retryAfter > 0 }),
    Hono: (context, verdict) => context.json({ wait: verdict.retryAfter > 0 }),
  },
};
