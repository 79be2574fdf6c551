// What the tests share: real servers as children on free ports, in temporary folders, stopped by their own handle.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { createServer, connect } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
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

/** A PostgreSQL server with an empty database. */
export class Postgres {
  static async start() {
    const postgres = new Postgres();
    postgres.port = await freePort();
    postgres.folder = folder();
    // It refuses to run as root.
    postgres.user = process.getuid() === 0 ? ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--"] : [];
    if (process.getuid() === 0) await output("chown", ["nobody:nogroup", postgres.folder]);
    const data = join(postgres.folder, "data");
    await postgres.#run("initdb", ["-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N"]);
    const options = ["-D", data, "-p", `${postgres.port}`, "-k", postgres.folder, "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"];
    const [command, ...args] = postgres.#command("postgres", options);
    postgres.child = spawn(command, args, { cwd: postgres.folder, stdio: "ignore" });
    await listening(postgres.port, postgres.child);
    for (let attempt = 0; ; attempt++) {
      try {
        await postgres.sql("create database limits", "postgres");
        return postgres;
      } catch (error) {
        // It listens a moment before it answers.
        if (attempt > 200) throw error;
        await sleep(50);
      }
    }
  }

  get url() {
    return `postgres://postgres@127.0.0.1:${this.port}/limits`;
  }

  async sql(text, database = "limits") {
    const place = ["-h", "127.0.0.1", "-p", `${this.port}`, "-U", "postgres", "-d", database];
    const { stdout } = await this.#run("psql", [...place, "-v", "ON_ERROR_STOP=1", "-qAtc", text]);
    return stdout.trim();
  }

  async stop() {
    this.child.kill("SIGQUIT");
    await once(this.child, "exit");
  }

  #run(program, args) {
    const [command, ...rest] = this.#command(program, args);
    return output(command, rest, { cwd: this.folder });
  }

  /** Debian has its programs in a folder of the version. */
  #command(program, args) {
    const versions = existsSync("/usr/lib/postgresql") ? readdirSync("/usr/lib/postgresql") : [];
    const folders = [...versions.map((version) => `/usr/lib/postgresql/${version}/bin`), ...process.env.PATH.split(delimiter)];
    const found = folders.map((folder) => join(folder, program)).find((path) => existsSync(path));
    if (found === undefined) throw new Error(`${program} is not installed; ./run setup installs it`);
    return [...this.user, found, ...args];
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
