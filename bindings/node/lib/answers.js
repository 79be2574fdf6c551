// Answers that come later. The addon wakes JavaScript once for all that are ready. The process is kept alive only while a
// caller waits.
"use strict";

const addon = require("./addon.js");
const { understood } = require("./errors.js");
const { pageOf, pages } = require("./layers.js");
const { STORE, warn } = require("./warnings.js");

const waiting = new Map();
let tickets = 0;
let isListening = false;
let isFlushing = false;

/** Has the addon wake this thread when there is something to take. */
function listen() {
  if (!isListening) addon.listen(deliver, pages);
  isListening = true;
}

/** A ticket under which an answer may come later. */
function ticket() {
  listen();
  tickets = (tickets + 1) >>> 0;
  return tickets;
}

/** A promise of the answer that will come under a ticket. */
function later(ticket, make) {
  return new Promise((resolve, reject) => {
    if (waiting.size === 0) addon.keepAlive(true);
    waiting.set(ticket, { make, resolve, reject });
    if (!isFlushing) setImmediate(flush);
    isFlushing = true;
  });
}

/** Sends what was asked in this turn of the event loop: the requests of all sockets that were readable go out together. */
function flush() {
  isFlushing = false;
  try {
    addon.flush();
  } catch (error) {
    // Nobody will answer.
    for (const { reject } of waiting.values()) reject(understood(error));
    waiting.clear();
    addon.keepAlive(false);
  }
}

function deliver() {
  for (;;) {
    const taken = addon.take();
    if (taken.length === 0) break;
    // Callers go on when this is done: what they ask next may start another page of layers.
    for (let index = 0; index < taken.length; index += 3) settle(taken[index], taken[index + 1], taken[index + 2]);
  }
  if (waiting.size === 0) addon.keepAlive(false);
  for (const warning of addon.takeWarnings() ?? []) warn(warning, STORE);
}

function settle(ticket, hasFailed, answer) {
  const waiter = waiting.get(ticket);
  // It may have been the first layer on its page.
  if (waiter === undefined) return void pageOf(0);
  waiting.delete(ticket);
  if (hasFailed) return waiter.reject(understood(answer));
  try {
    waiter.resolve(waiter.make(answer));
  } catch (error) {
    waiter.reject(error);
  }
}

/** The answer of a call, converted: at once if it is there, otherwise as a promise. */
function converted(ticket, answer, make) {
  return answer == null ? later(ticket, make) : make(answer);
}

/**
 * Asks, and converts the answer: at once if it is ready, otherwise as a promise. `ask` gets the ticket.
 */
function asked(isRemote, ask, make) {
  const mine = isRemote ? ticket() : 0;
  let answer;
  try {
    answer = ask(mine);
  } catch (error) {
    throw understood(error);
  }
  return converted(mine, answer, make);
}

/** The same, always as a promise. */
function promised(isRemote, ask, make) {
  try {
    return Promise.resolve(asked(isRemote, ask, make));
  } catch (error) {
    return Promise.reject(error);
  }
}

module.exports = { asked, converted, listen, promised, ticket };
