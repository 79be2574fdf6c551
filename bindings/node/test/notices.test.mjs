// What operators should know: settings that can be spoofed, and proxies that are missing in trustedProxies.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { Limiter } from "tollkeeper";
import { rateLimit } from "tollkeeper/express";
import { folder } from "./world.mjs";

/** The warnings that are emitted while something runs. */
async function warnings(run) {
  const found = [];
  const listener = ({ name, code, message }) => found.push({ name, code, message });
  process.on("warning", listener);
  try {
    await run();
    // They are emitted in the next turn.
    await setImmediate();
  } finally {
    process.off("warning", listener);
  }
  return found;
}

const messages = async (run) => (await warnings(run)).map(({ message }) => message);

/** Asks a middleware as Node's server would. */
function ask(limited, remoteAddress, headers) {
  const request = { socket: { remoteAddress }, method: "GET", url: "/", rawHeaders: Object.entries(headers).flat() };
  const response = { setHeader() {}, end() {} };
  return new Promise((resolve, reject) => limited(request, response, (error) => (error ? reject(error) : resolve())));
}

test("a proxy that is not trusted is reported once", async () => {
  const limited = rateLimit("1000/min");
  const found = await warnings(async () => {
    for (let client = 0; client < 5; client++) await ask(limited, "10.0.0.1", { "X-Forwarded-For": `203.0.113.${client}` });
  });
  const message =
    "10.0.0.1 sends forwarding headers but is not in trusted_proxies, so `ip` is its own address for " +
    "all of its requests; add it if it is your proxy";
  assert.deepEqual(found, [{ name: "TollkeeperWarning", code: "TOLLKEEPER_PROXY", message }]);
});

test("a proxy is found later too", async () => {
  const limited = rateLimit("1,000,000/min");
  const found = await messages(async () => {
    for (let request = 0; request < 1000; request++) {
      await ask(limited, "10.0.0.1", request < 500 ? {} : { "X-Real-IP": "203.0.113.7" });
    }
  });
  assert.equal(found.length, 1);
});

test("nothing is reported where nothing is wrong", async () => {
  const found = await messages(async () => {
    await ask(rateLimit("1000/min"), "203.0.113.7", { accept: "*/*" });
    await ask(rateLimit("1000/min", { trustedProxies: ["10.0.0.0/8"] }), "10.0.0.1", { "x-forwarded-for": "203.0.113.7" });
    await ask(rateLimit("1000/min", { by: "header.x-api-key" }), "10.0.0.1", { "x-forwarded-for": "203.0.113.7" });
    // The application finds the address itself.
    await ask(rateLimit("1000/min", { address: () => "198.51.100.1" }), "10.0.0.1", { "x-forwarded-for": "203.0.113.7" });
  });
  assert.deepEqual(found, []);
});

test("headers that contradict each other are reported", async () => {
  const limited = rateLimit("1000/min", { trustedProxies: ["10.0.0.0/8"] });
  const [message, ...others] = await messages(async () => {
    for (let time = 0; time < 3; time++) await ask(limited, "10.0.0.1", { "x-forwarded-for": "203.0.113.7", forwarded: "for=6.6.6.6" });
  });
  assert.match(message, /sends Forwarded and X-Forwarded-For, and they differ/);
  assert.deepEqual(others, []);
});

test("settings that can be spoofed are warned of", async () => {
  for (const [settings, words] of [
    [{ trustedProxies: ["0.0.0.0/0"] }, /trusted_proxies\[0\]: trusts everybody/],
    [{ clientAddress: "x-real-ip" }, /client_address: x-real-ip is ignored, because trusted_proxies is empty/],
    [{ ipv6Prefix: 128 }, /ipv6_prefix: with 128 bits one subscriber/],
    [{ by: "header.x-forwarded-for" }, /`header.x-forwarded-for` is chosen by the client/],
  ]) {
    const [{ code, message }, ...others] = await warnings(() => void rateLimit("100/min", settings));
    assert.equal(code, "TOLLKEEPER_SETTING");
    assert.match(message, words);
    assert.deepEqual(others, []);
  }
});

// Limits on one Redis share a limiter, and only the rules of the first one were looked at.
test("rules that are added later are warned of, and settings only once", async () => {
  const settings = { store: "redis://127.0.0.1:1", namespace: "notices", ipv6Prefix: 128 };
  const first = await messages(() => void rateLimit("100/min", settings));
  const second = await messages(() => void rateLimit("5/min", { ...settings, by: "header.x-forwarded-for" }));
  assert.deepEqual([first.length, second.length], [1, 1]);
  assert.match(second[0], /`header.x-forwarded-for`/);
});

test("a file is warned of with its line", async () => {
  const path = join(folder(), "tollkeeper.yaml");
  writeFileSync(path, "rules:\n  - { name: a, key: '{header.user-agent}', limit: 1/s }\n");
  const [message] = await messages(() => Limiter.fromFile(path));
  assert.match(message, /tollkeeper.yaml:2:.*is the same for everyone who uses the same program/);
});

test("usual settings cause no warning", async () => {
  const found = await messages(() => {
    rateLimit("100/min burst 20", { by: "header.x-api-key|ip", trustedProxies: ["10.0.0.0/8", "127.0.0.1"] });
    Limiter.fromRules([{ name: "a", key: "{user_id}", limit: "1/s" }, "10/min by ip"]);
  });
  assert.deepEqual(found, []);
});
