// One-line limits as the rules of a limiter.
"use strict";

const addon = require("./addon.js");
const { ConfigError, RuleError, UsageError, understood } = require("./errors.js");
const { Quota, native } = require("./quota.js");

/** The attribute that holds what a key function returned. */
const KEY = "key";

/** The rule for a line or a quota. The library parses it. */
function ruleOf(name, line, by) {
  const text = line instanceof Quota ? native(line).line() : line;
  try {
    return JSON.parse(addon.ruleJson(name, text, by));
  } catch (error) {
    throw understood(error);
  }
}

/** Rules as in the file; lines and quotas are rules too. */
function specs(rules) {
  if (!Array.isArray(rules)) {
    throw new RuleError('rules must be an array of objects or of strings such as "100/min by ip"');
  }
  return rules.map((rule, index) => {
    if (typeof rule !== "string" && !(rule instanceof Quota)) return rule;
    return ruleOf(index === 0 ? "limit" : `limit-${index + 1}`, rule);
  });
}

/** What every HTTP request can have, beside headers, cookies, parameters of the query and what `identify` names. */
const ATTRIBUTES = ["ip", "user", "method", "path", "host", KEY];
const PART = /^(header\.[!#$%&'*+.^_`|~0-9A-Za-z-]+|(cookie|query)\..+)$/;

/** Refuses a key by an attribute that no request has: nobody would be limited. */
function requireKnown(key, identify) {
  const names = [...key.matchAll(/{([^{}]*)}/g)].flatMap(([, alternatives]) => alternatives.split("|"));
  for (const name of names) {
    if (name === "" || ATTRIBUTES.includes(name) || PART.test(name) || Object.hasOwn(identify, name)) continue;
    throw new ConfigError(
      `by: no request has "${name}"; use ip, user, header.NAME, cookie.NAME, query.NAME or global, name it in \`identify\`, or give ` +
        "a function of the request",
    );
  }
}

/** The rules for the limits of a middleware, with names derived from this one. */
function rulesOf(limit, by, name, when, identify) {
  const lines = Array.isArray(limit) ? limit : [limit];
  if (lines.length === 0) throw new UsageError('the limit is missing; write for example "5/min"');
  return lines.map((line, index) => {
    if (typeof line === "function") {
      throw new UsageError(
        "a limit cannot be a function: write a rule for each limit, and pass `limiter` and `attributes`, a function that returns the " +
          "attributes that the rules match",
      );
    }
    if (typeof line !== "string" && !(line instanceof Quota)) {
      throw new UsageError(`a limit must be a string such as "100/min burst 20" or a Quota, not ${line}`);
    }
    const key = typeof by === "function" ? KEY : by;
    const spec = ruleOf(index === 0 ? name : `${name}-${index + 1}`, line, key);
    requireKnown(spec.key, identify ?? {});
    return when ? { ...spec, when } : spec;
  });
}

module.exports = { KEY, specs, rulesOf };
