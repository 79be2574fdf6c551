// The parts of a request of Node's own server, which Express, Koa, Fastify and NestJS are made of.
"use strict";

/** The values of these headers, names and values in turn, as often as they came. */
function headers(incoming, names) {
  return headersIn(incoming.rawHeaders, names);
}

/** The same, of a list of names and values in turn. */
function headersIn(raw, names) {
  let found;
  for (let index = 0; index < raw.length; index += 2) {
    const name = known(raw[index], names);
    if (name === undefined) continue;
    // An empty list that grows gets room for many; most requests have one of these headers.
    if (found === undefined) found = [name, raw[index + 1]];
    else found.push(name, raw[index + 1]);
  }
  return found ?? [];
}

/** Which of these names it is. Most are ruled out by their length. */
function known(name, names) {
  // HTTP/2's name for the host.
  if (name === ":authority") name = "host";
  for (let index = 0; index < names.length; index++) {
    const wanted = names[index];
    if (name.length === wanted.length && (name === wanted || name.toLowerCase() === wanted)) return wanted;
  }
  return undefined;
}

/** The peer's address. */
function peer(incoming) {
  return incoming.socket?.remoteAddress;
}

/** Whether the response has ended, or its client has gone. */
function isOver(response) {
  // One on HTTP/2 only knows its stream.
  return response.closed || response.destroyed || response.stream?.destroyed;
}

/** Calls back when the response ends, however it ends. */
function whenOver(response, callback) {
  if (isOver(response)) callback();
  else response.once("close", callback);
}

/** Where a response carries what waits for its head: each of many guards on one request would add a listener. */
const WAITING = Symbol("tollkeeper.waiting");

/** Calls back once when the head of the response has been written; never if the connection ends before. */
function whenAnswered(response, callback) {
  if (response[WAITING] !== undefined) return void response[WAITING].push(callback);
  const waiting = (response[WAITING] = [callback]);
  let hasEnded = false;
  const answered = () => {
    if (hasEnded || !response.headersSent) return;
    for (const callback of waiting.splice(0)) callback();
  };
  const { writeHead } = response;
  response.writeHead = function (...head) {
    const written = writeHead.apply(this, head);
    answered();
    return written;
  };
  whenOver(response, () => {
    // For servers that write it in another way.
    answered();
    hasEnded = true;
  });
}

/** Sets headers that are names and values in turn; those without a value are removed. */
function setHeaders(response, flat) {
  const { setHeader } = response;
  for (let index = 0; index < flat.length; index += 2) {
    if (flat[index + 1] === "") response.removeHeader(flat[index]);
    else setHeader.call(response, flat[index], flat[index + 1]);
  }
}

/** The headers of a denial that the application answers: the type is that of its own body. */
function withoutType(flat) {
  const kept = [];
  for (let index = 0; index < flat.length; index += 2) {
    if (flat[index] !== "content-type") kept.push(flat[index], flat[index + 1]);
  }
  return kept;
}

/** Sends a denial. */
function send(response, { status, headers, body }) {
  // Together: Node has to keep headers that are set one by one. As an object, which all that wrap `writeHead` understand.
  const fields = {};
  for (let index = 0; index < headers.length; index += 2) {
    if (headers[index + 1] === "") response.removeHeader(headers[index]);
    else fields[headers[index]] = headers[index + 1];
  }
  fields["content-length"] = Buffer.byteLength(body);
  response.writeHead(status, fields);
  response.end(body);
}

module.exports = { headers, headersIn, isOver, peer, send, setHeaders, whenAnswered, whenOver, withoutType };
