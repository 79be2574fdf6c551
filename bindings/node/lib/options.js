// Options by name. An unknown one is refused, because the mistake would otherwise go unnoticed.
"use strict";

const { ConfigError } = require("./errors.js");

/** Refuses options that are not among these names. */
function known(where, options, names) {
  if (options === null || typeof options !== "object") {
    throw new ConfigError(`${where}: options are an object such as { ${names[0]}: ... }, not ${options}`);
  }
  for (const name of Object.keys(options)) {
    if (!names.includes(name)) {
      throw new ConfigError(`${where}: there is no option \`${name}\`; use one of ${names.join(", ")}`);
    }
  }
}

/** The options of a limiter beside its rules. */
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

/** Settings as in the rules file; `place` says where rules are, if not in code. */
function written(rules, options, place) {
  const { store = "memory:", timeout, maxKeys, namespace, clock, ...rest } = options;
  const settings = { rules, ...place, store: { url: store, timeout: span(timeout), max_keys: maxKeys, namespace } };
  for (const [name, value] of Object.entries(rest)) {
    settings[name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)] = value;
  }
  return JSON.stringify(settings);
}

/** A duration from seconds, or from a text such as `20ms`. */
function span(time) {
  if (time === undefined || typeof time === "string") return time;
  if (!(Number.isFinite(time) && time > 0)) {
    throw new ConfigError(`timeout: ${time} is not a duration; write seconds such as 0.02, or a text such as "20ms"`);
  }
  return `${Math.ceil(time * 1000)}ms`;
}

module.exports = { known, written, SETTINGS };
