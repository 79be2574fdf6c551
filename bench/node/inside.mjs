// The application in a process of its own, without sockets: requests as Node's server makes them are passed to it by 50 callers,
// each of which waits for its response before it sends the next one. What is measured is Express and the limiter, and not the
// network and the client, whose cost varies more than a limiter costs. Told how many requests to make, it tells how much CPU they took.
import { IncomingMessage, ServerResponse } from "node:http";
import { Writable } from "node:stream";
import { app } from "./application.mjs";

const CALLERS = 50;
const users = process.env.USERS.split(",");

/** A connection that takes all that is written to it. */
class Connection extends Writable {
  remoteAddress = "127.0.0.1";
  _write(chunk, encoding, callback) {
    callback();
  }
  _writev(chunks, callback) {
    callback();
  }
  setTimeout() {}
}

/** Resolves to the status. */
function request(user, connection) {
  const incoming = new IncomingMessage(connection);
  Object.assign(incoming, { method: "GET", url: "/", httpVersion: "1.1", httpVersionMajor: 1, httpVersionMinor: 1 });
  const raw = ["Host", "127.0.0.1", "Connection", "keep-alive", "x-user", user];
  incoming._addHeaderLines(raw, raw.length);
  const response = new ServerResponse(incoming);
  response.assignSocket(connection);
  return new Promise((resolve) => {
    response.once("finish", () => {
      response.detachSocket(connection);
      resolve(response.statusCode);
    });
    app(incoming, response);
  });
}

async function run(requests) {
  const before = process.cpuUsage();
  let [calls, denied] = [0, 0];
  const caller = async (first) => {
    const connection = new Connection();
    for (let index = first; calls < requests; index++) {
      calls++;
      if ((await request(users[index % users.length], connection)) !== 200) denied++;
    }
  };
  await Promise.all(Array.from({ length: CALLERS }, (_, index) => caller(index * 7)));
  return { calls, denied, cpu: process.cpuUsage(before) };
}

process.on("message", async ({ requests }) => process.send(await run(requests)));
process.send({ isReady: true });
