// Where the addon keeps what it decided on a request: on pages, so that the collector has one object to finalize for many
// requests. A layer is named by its page and its number on it.
"use strict";

const addon = require("./addon.js");

const pages = addon.pages();
let current;

/** The page of the layer with this number, if it was the last one to be kept. The first one has the number 0. */
function pageOf(number) {
  if (number === 0) current = addon.page(pages);
  return current;
}

module.exports = { pageOf, pages };
