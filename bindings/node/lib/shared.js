// Limiters behind middleware. In memory each limit has its own; on a server all limits with the same settings share one, and so
// one connection.
"use strict";

const { ConfigError, UsageError } = require("./errors.js");
const { Limiter } = require("./limiter.js");
const { SETTINGS, known, url } = require("./options.js");
const { rulesOf } = require("./rules.js");

/** The attribute that says which limit applies to a request. */
const LIMIT = "limit";

// By settings: a limiter and, by name, its rules.
const shared = new Map();
const counts = new Map();

/** The limiter for a limit, and the attributes to add to each request. */
function limiterFor(limit, by, name, settings) {
  known("rateLimit", settings, SETTINGS);
  const { store = "memory:", clock, identify } = settings;
  if (name !== undefined && typeof name !== "string") throw new ConfigError(`name: must be a string, not ${name}`);
  name ??= nextName(store);
  if (url(store).startsWith("memory:") || clock) {
    return { limiter: Limiter.fromRules(rulesOf(limit, by, name, undefined, identify), settings), about: undefined };
  }
  const rules = rulesOf(limit, by, name, { [LIMIT]: name }, identify);
  const place = JSON.stringify(Object.entries(settings).sort(([one], [other]) => (one < other ? -1 : 1)));
  let entry = shared.get(place);
  if (!entry) {
    entry = { limiter: Limiter.fromRules(rules, settings), rules: new Map([[name, rules]]) };
    shared.set(place, entry);
  } else {
    add(entry, name, rules);
  }
  return { limiter: entry.limiter, about: [LIMIT, name] };
}

function add(entry, name, rules) {
  const before = entry.rules.get(name);
  if (before === undefined) {
    const all = [...entry.rules.values(), rules].flat();
    entry.limiter.replaceRules(all);
    entry.rules.set(name, rules);
  } else if (JSON.stringify(before) !== JSON.stringify(rules)) {
    throw new UsageError(`two different limits are called "${name}"; give one of them another name`);
  }
}

/** `requests`, then `requests-2`: in the order of creation, so that all processes of a program use the same names. */
function nextName(store) {
  const count = (counts.get(store) ?? 0) + 1;
  counts.set(store, count);
  return count === 1 ? "requests" : `requests-${count}`;
}

module.exports = { limiterFor };
