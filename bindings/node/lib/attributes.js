// The attributes of a request as the addon takes them: names and values in turn.
"use strict";

const { UsageError } = require("./errors.js");

/** Values are strings; numbers and booleans are converted, and null or undefined means absent. */
function pairs(attributes) {
  if (attributes === null || typeof attributes !== "object") {
    throw new TypeError(`attributes must be an object such as { user_id: "42" }, not ${attributes}`);
  }
  const flat = [];
  for (const name in attributes) {
    const value = attributes[name];
    if (value !== undefined && value !== null) flat.push(name, text(value, name));
  }
  return flat;
}

function text(value, name) {
  switch (typeof value) {
    case "string":
      return value;
    case "number":
    case "bigint":
    case "boolean":
      return String(value);
    default:
      throw new TypeError(`${name}: an attribute must be a string, a number or a boolean, not ${typeof value}`);
  }
}

/** A cost is a whole number; 0 peeks. */
function cost(value) {
  if (value === undefined) return 1;
  if (!Number.isInteger(value) || value < 0 || value > 0xffffffff) {
    throw new TypeError(`cost: ${value} is not a whole number from 0 to 4294967295`);
  }
  return value;
}

const NAMES = ["id", "pk", "user_id", "userId", "_id", "username", "sub"];

/** The name of a user, or the result of a key function, as a string; undefined if there is none. */
function nameOf(user) {
  if (user === undefined || user === null || user === false) return undefined;
  if (typeof user !== "object") return String(user);
  for (const name of NAMES) {
    const value = user[name];
    if (value !== undefined && value !== null) return String(value);
  }
  throw new UsageError(
    `cannot identify the user: it has none of ${NAMES.join(", ")}. Give \`by\` a function that returns a string`,
  );
}

module.exports = { pairs, cost, nameOf };
