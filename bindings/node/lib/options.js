// Options by name. An unknown one is refused, because the mistake would otherwise go unnoticed.
"use strict";

const { inspect } = require("node:util");
const { ConfigError } = require("./errors.js");

/** Refuses options that are not among these names. `instead` says what to write for options of other packages. */
function known(where, options, names, instead = {}) {
  if (options === null || typeof options !== "object" || Array.isArray(options)) {
    throw new ConfigError(`${where}: options are an object such as { ${names[0]}: ... }, not ${inspect(options)}`);
  }
  for (const name in options) {
    if (names.includes(name)) continue;
    const advice = Object.hasOwn(instead, name) ? `write ${instead[name]}` : `use one of ${names.join(", ")}`;
    throw new ConfigError(`${where}: there is no option \`${name}\`; ${advice}`);
  }
}

/** The options of a limiter, in addition to its rules. */
const SETTINGS = [
  "store",
  "timeout",
  "maxKeys",
  "namespace",
  "trustedProxies",
  "clientAddress",
  "ipv6Prefix",
  "headers",
  "identify",
  "denyStatus",
  "clock",
];

/** The URL of a store. Clients and stores of other packages are a likely mistake. */
function url(store) {
  if (typeof store === "string") return store;
  const shown = typeof store === "object" ? "an object" : String(store);
  throw new ConfigError(`store: must be a URL such as "redis://127.0.0.1:6379", or "memory:", not ${shown}`);
}

/** Settings that are texts. */
const TEXTS = ["namespace", "clientAddress", "headers"];

function requireTexts(options) {
  for (const name of TEXTS) {
    const value = options[name];
    if (value !== undefined && typeof value !== "string") throw new ConfigError(`${name}: must be a text, not ${value}`);
  }
}

/** Settings as in the rules file; `place` says where rules are, if not in code. */
function written(rules, options, place) {
  requireTexts(options);
  const { store = "memory:", timeout, maxKeys, namespace, clock, ...rest } = options;
  const settings = { rules, ...place, store: { url: url(store), timeout: span(timeout), max_keys: maxKeys, namespace } };
  for (const [name, value] of Object.entries(rest)) {
    settings[name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)] = value;
  }
  return JSON.stringify(settings);
}

/** A duration from seconds, or from a text such as `20ms`. */
function span(time) {
  if (time === undefined || typeof time === "string") return time;
  if (!(Number.isFinite(time) && time > 0)) {
    throw new ConfigError(`timeout: ${time} is not a duration; write seconds such as 0.02, or a string such as "20ms"`);
  }
  return `${Math.ceil(time * 1000)}ms`;
}

module.exports = { known, url, written, SETTINGS };
