// Several requests in one call, each decided by itself.
"use strict";

const { cost: charge, pairs } = require("./attributes.js");
const { OverloadedError } = require("./errors.js");
const { Verdict } = require("./verdict.js");

/** Attributes, costs and rules as the addon takes them. Each request is attributes, or a list of what `check` takes. */
function batch(requests, rules) {
  if (requests === null || typeof requests !== "object" || typeof requests[Symbol.iterator] !== "function") {
    throw new TypeError("requests must be an array of attributes or of [attributes, { cost }]");
  }
  const all = { attributes: [], costs: [], rules: [] };
  for (const request of requests) {
    const [attributes, options] = Array.isArray(request) ? request : [request];
    all.attributes.push(pairs(attributes));
    all.costs.push(charge(options?.cost));
    all.rules.push(options?.rules ?? rules);
  }
  return all;
}

/** The verdicts. If some requests were shed, they are in the error: others may have been charged. */
function verdicts([shed, ...texts]) {
  const all = texts.map((text) => (text === null ? null : new Verdict(text)));
  if (shed === null) return all;
  const error = new OverloadedError(shed);
  error.verdicts = all;
  throw error;
}

module.exports = { batch, verdicts };
