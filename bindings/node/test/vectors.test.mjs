// The package answers as the independent model does that wrote the vector files of the core, on memory and on Redis.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Limiter, ManualClock, keyed } from "tollkeeper";
import { Redis, namespace, vectors } from "./world.mjs";

const DECISIONS = vectors("decisions.json");
const VERDICTS = vectors("verdicts.json");
const BURSTS = ["token_bucket", "gcra", "leaky_bucket"];
const us = (seconds) => (seconds === null ? null : Math.round(seconds * 1e6));

let redis;
before(async () => (redis = await Redis.start()));
after(() => redis.kill());

/** A quota of the vectors as people write it. */
function line({ algorithm, burst, count, period_us, calendar }) {
  if (calendar) {
    const { unit, timezone, anchor_day } = calendar;
    return `${count}/${unit} algorithm ${algorithm} timezone ${timezone} anchor_day ${anchor_day}`;
  }
  const period = `${period_us / 1000}ms`;
  if (algorithm === "concurrency") return `${count} algorithm concurrency hold ${period}`;
  return `${count}/${period}${BURSTS.includes(algorithm) ? ` burst ${burst}` : ""} algorithm ${algorithm}`;
}

function spec({ name, key, when, cost, mode, quota }) {
  const rule = { name, key, when, cost, mode, limit: `${quota.count}/${quota.period_us / 1000}ms`, algorithm: quota.algorithm };
  return BURSTS.includes(quota.algorithm) ? { ...rule, burst: quota.burst } : rule;
}

for (const { name, quota, steps } of DECISIONS) {
  test(`keyed decides as the model: ${name}`, () => {
    const clock = new ManualClock();
    const limiter = keyed(line(quota), { clock });
    for (const [at, cost, ...expected] of steps) {
      clock.setUs(at);
      const { allowed, retryAfter, remaining, resetAfter, delay } = limiter.check("key", cost);
      assert.deepEqual([allowed, us(retryAfter), remaining, us(resetAfter), us(delay)], expected, `at ${at}`);
    }
  });
}

for (const store of ["memory", "redis"]) {
  const settings = () => ({ store: store === "memory" ? "memory:" : redis.url, namespace: namespace(), timeout: 10 });

  test(`single rules decide as the model, ${store}`, async () => {
    const clock = new ManualClock();
    const rules = DECISIONS.map(({ quota }, index) => {
      const [rule] = Limiter.fromRules([line(quota)]).rules;
      return { ...rule, name: `case-${index}`, key: "global", when: { case: String(index) } };
    });
    const limiter = Limiter.fromRules(rules, { ...settings(), clock });
    for (const [index, { name, steps }] of DECISIONS.entries()) {
      for (const [at, cost, ...expected] of steps) {
        clock.setUs(at);
        const verdict = await limiter.check({ case: index }, { cost });
        const [{ allowed, retryAfter, remaining, resetAfter, delay }] = verdict.rules;
        assert.deepEqual([allowed, us(retryAfter), remaining, us(resetAfter), us(delay)], expected, `${name} at ${at}`);
      }
    }
  });

  for (const { name, rules, events } of VERDICTS) {
    test(`verdicts are those of the model: ${name}, ${store}`, async () => {
      const clock = new ManualClock();
      const limiter = Limiter.fromRules(rules.map(spec), { ...settings(), clock });
      for (const { at_us, attributes, cost, ...expected } of events) {
        clock.setUs(at_us);
        const verdict = await limiter.check(attributes, { cost });
        const rows = verdict.rules.map((row) => ({
          rule: row.rule,
          key: row.key,
          allowed: row.allowed,
          shadow: row.shadow,
          limit: row.limit,
          retry_after_us: us(row.retryAfter),
          delay_us: us(row.delay),
          remaining: row.remaining,
          reset_after_us: us(row.resetAfter),
        }));
        const { allowed, limiting, retryAfter } = verdict;
        assert.deepEqual({ allowed, limiting, retry_after_us: us(retryAfter), rules: rows }, expected);
        assert.equal(verdict.source, "store");
      }
    });
  }
}
