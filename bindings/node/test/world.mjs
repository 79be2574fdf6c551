// What the tests share: real servers as children on free ports, in temporary folders, stopped by their own handle.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer, connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

export const ROOT = fileURLToPath(new URL("../../..", import.meta.url));

/** A text that no other test uses, for keys in a shared server. */
export const namespace = () => `test-${crypto.randomUUID()}`;

export function vectors(name) {
  return JSON.parse(readFileSync(join(ROOT, "crates/core/tests/vectors", name), "utf8")).cases;
}

/** A folder that is gone when the tests are over. */
export function folder() {
  const path = mkdtempSync(join(tmpdir(), "tollkeeper-node-"));
  process.on("exit", () => rmSync(path, { recursive: true, force: true }));
  return path;
}

export async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

/** Waits until somebody listens on a port. */
export async function listening(port, child) {
  for (let attempt = 0; attempt < 1200; attempt++) {
    if (child && child.exitCode !== null) throw new Error(`${child.spawnfile} ended with ${child.exitCode}`);
    const socket = connect(port, "127.0.0.1");
    try {
      await once(socket, "connect");
      return;
    } catch {
      await sleep(50);
    } finally {
      socket.destroy();
    }
  }
  throw new Error(`nobody listens on port ${port}`);
}

/** A Redis server that can be stopped, killed and started again. */
export class Redis {
  static async start() {
    const redis = new Redis();
    redis.port = await freePort();
    redis.folder = folder();
    await redis.run();
    return redis;
  }

  get url() {
    return `redis://127.0.0.1:${this.port}`;
  }

  async run() {
    const args = ["--port", this.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
    this.child = spawn("redis-server", args.map(String), { cwd: this.folder, stdio: "ignore" });
    await listening(this.port, this.child);
  }

  async kill() {
    if (this.child.exitCode === null && this.child.signalCode === null) {
      this.child.kill("SIGKILL");
      await once(this.child, "exit");
    }
  }
}

/** A program's output; it has to end well, and to say nothing on stderr. */
export async function output(command, args, options = {}) {
  const child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"], ...options });
  const hang = setTimeout(() => child.kill("SIGKILL"), 120_000);
  const read = async (stream) => {
    let text = "";
    for await (const chunk of stream.setEncoding("utf8")) text += chunk;
    return text;
  };
  const [stdout, stderr, [code, signal]] = await Promise.all([read(child.stdout), read(child.stderr), once(child, "close")]);
  clearTimeout(hang);
  if (code !== 0) throw new Error(`${command} ${args.join(" ")} ended with ${code ?? signal}\n${stdout}\n${stderr}`);
  return { stdout, stderr };
}

/** Starts an application on a free port for as long as `use` runs. */
export async function serving(listen, use) {
  const server = await listen();
  if (!server.listening) await once(server, "listening");
  try {
    return await use(`http://127.0.0.1:${server.address().port}`);
  } finally {
    server.closeAllConnections?.();
    await new Promise((resolve) => server.close(resolve));
  }
}

/** The statuses of so many requests, one after the other. */
export async function statuses(url, count, options) {
  const found = [];
  for (let index = 0; index < count; index++) {
    const response = await fetch(url, options);
    await response.arrayBuffer();
    found.push(response.status);
  }
  return found;
}
