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

/** Calls back when the response ends, however it ends. */
function whenOver(response, callback) {
  if (response.closed || response.destroyed) callback();
  else response.once("close", callback);
}

/** Calls back once when the head of the response has been written; never if the connection ends before. */
function whenAnswered(response, callback) {
  let isOver = false;
  const end = () => {
    if (isOver || !response.headersSent) return;
    isOver = true;
    callback();
  };
  const { writeHead } = response;
  response.writeHead = function (...head) {
    const written = writeHead.apply(this, head);
    end();
    return written;
  };
  // For servers that write it in another way.
  whenOver(response, end);
}

/** Sets headers that are names and values in turn. */
function setHeaders(response, flat) {
  const { setHeader } = response;
  for (let index = 0; index < flat.length; index += 2) setHeader.call(response, flat[index], flat[index + 1]);
}

/** Sends a denial. */
function send(response, { status, headers, body }) {
  // Together: Node has to keep headers that are set one by one. As an object, which all that wrap `writeHead` understand.
  const fields = {};
  for (let index = 0; index < headers.length; index += 2) fields[headers[index]] = headers[index + 1];
  fields["content-length"] = Buffer.byteLength(body);
  response.writeHead(status, fields);
  response.end(body);
}

module.exports = { headers, headersIn, peer, send, setHeaders, whenAnswered, whenOver };
