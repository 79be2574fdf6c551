// What is shown when there is nothing to show, nobody may see it, or nobody answers.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer as createHttpServer } from "node:http";
import { createServer } from "node:net";
import { after, before, test } from "node:test";
import { closeBrowser, faults, folder, openBrowser, openPage, picture, RULES, Service } from "./world.mjs";

const TOKEN = "open-sesame-open-sesame";
const running = [];
before(openBrowser);
after(async () => {
  await closeBrowser();
  for (const one of running) await one.end();
});

async function start(rules, more) {
  const service = await Service.start(rules, more);
  running.push(service);
  return service;
}

test("without traffic the page says what to try, and it works", async () => {
  const service = await start(RULES);
  const page = await openPage(service);
  await page.waitForSelector("#empty >> text=No traffic yet");
  const command = await page.textContent("#empty-command");
  assert.ok(command.includes(`${service.url}/v1/check`), command);
  assert.deepEqual(await faults(page), []);
  await picture(page, "empty");
  const shell = spawn("sh", ["-c", command], { stdio: "ignore" });
  assert.deepEqual(await once(shell, "exit"), [0, null]);
  await page.waitForSelector("#empty", { state: "hidden" });
  assert.match(await page.textContent("#tile-rate-note"), /^1 in all/);
  assert.deepEqual(page.sins, []);
});

test("with a token the page asks for it, keeps it in the tab, and sends it in a header", async () => {
  const service = await start(`admin: { token: "${TOKEN}" }\n${RULES}`);
  assert.equal(service.page, `${service.url}/`, "a token that somebody set is printed nowhere");
  const page = await openPage(service);
  await page.waitForSelector("#sign-in:visible");
  assert.deepEqual(await faults(page), []);
  await picture(page, "sign-in");
  assert.equal(await page.isVisible("nav"), false);
  await page.fill("#token", "sesame");
  await page.keyboard.press("Enter");
  await page.waitForSelector("#token-error:has-text('was refused')");
  await page.fill("#token", "日本");
  await page.keyboard.press("Enter");
  await page.waitForSelector("#token-error:has-text('no such characters')");
  const sent = [];
  page.on("request", (request) => sent.push(request));
  await page.fill("#token", TOKEN);
  await page.keyboard.press("Enter");
  await page.waitForSelector("#rule-cards .rule");
  assert.ok(sent.every((request) => !request.url().includes("sesame")));
  assert.equal(sent[0].headers().authorization, `Bearer ${TOKEN}`);
  assert.equal(await page.evaluate(() => JSON.stringify(localStorage).includes("sesame") || document.cookie !== ""), false);
  await page.reload();
  await page.waitForSelector("#rule-cards .rule");
  await page.click("#sign-out");
  await page.waitForSelector("#sign-in:visible");
  assert.equal(await page.evaluate(() => sessionStorage.length), 0);
  assert.ok(page.sins.every((sin) => sin.includes("401")), page.sins.join("\n"));
});

// It was open to whoever could reach the address, and to every page in a browser on the machine.
test("the address that is printed opens the page, and the token leaves the address bar", async () => {
  const service = await start(RULES);
  assert.match(service.page, /#token=[\w-]{32,}$/);
  const token = service.page.split("=")[1];
  const page = await openPage(service);
  const sent = [];
  page.on("request", (request) => sent.push(request));
  await page.waitForSelector("#empty:visible");
  assert.equal(page.url(), `${service.url}/`);
  assert.equal(await page.evaluate(() => history.length), 2, "nothing to go back to");
  await page.reload();
  await page.waitForSelector("#empty:visible");
  assert.ok(sent.length > 0 && sent.every((request) => !request.url().includes(token)));
  assert.equal(await page.evaluate((token) => JSON.stringify(localStorage).includes(token) || document.cookie !== "", token), false);
  assert.deepEqual(page.sins, []);
  // A tab of its own has no token.
  const other = await openPage({ ...service, page: `${service.url}/` });
  await other.waitForSelector("#sign-in:visible");
});

// A page on another origin could create rules with fetch(no-cors); now it gets nothing done, not even a decision.
test("a page of another origin changes nothing", async () => {
  const service = await start(RULES);
  const foreign = createHttpServer((_, response) => response.setHeader("content-type", "text/html").end("<p>hello</p>")).listen(0, "127.0.0.1");
  running.push({ end: async () => foreign.close() });
  await once(foreign, "listening");
  const page = await openPage({ url: service.url, page: `http://127.0.0.1:${foreign.address().port}/` });
  const tried = await page.evaluate(async ({ url, token }) => {
    const body = JSON.stringify({ attributes: { user_id: "victim", plan: "free" } });
    const outcomes = [];
    for (const [path, options] of [
      ["/v1/check", { method: "POST", mode: "no-cors", body }],
      ["/v1/rules", { method: "POST", mode: "no-cors", body: "{}" }],
      ["/v1/rules", { headers: { authorization: `Bearer ${token}` } }],
      ["/v1/keys?rule=free-user&key=victim", { method: "DELETE", headers: { authorization: `Bearer ${token}` } }],
    ]) {
      outcomes.push(await fetch(url + path, options).then((response) => response.type, () => "blocked"));
    }
    return outcomes;
  }, { url: service.url, token: service.page.split("=")[1] });
  assert.deepEqual(tried, ["opaque", "opaque", "blocked", "blocked"]);
  const [left] = await service.check([{ attributes: { user_id: "victim", plan: "free" }, cost: 0 }]);
  assert.equal(left.rules.find((rule) => rule.rule === "free-user").remaining, 2, "nothing was charged");
});

test("the page says when the service is unreachable, and when it answers again", async () => {
  const service = await start(`admin: { token: "${TOKEN}" }\n${RULES}`);
  const page = await openPage(service, { token: TOKEN });
  await page.waitForSelector("#empty:visible");
  await service.end();
  await page.waitForSelector("#banner:has-text('cannot be reached. The numbers below are old')");
  assert.match(await page.textContent("#announce"), /cannot be reached/);
  assert.equal(await page.textContent("#store-state"), "Service does not answer", "not a green state of the store");
  assert.match(await page.getAttribute("#store-state", "class"), /unreachable/);
  assert.deepEqual(await faults(page), []);
  await picture(page, "unreachable");
  await service.again();
  await page.click("#retry");
  await page.waitForSelector("#banner", { state: "hidden" });
  assert.equal(await page.textContent("#announce"), "The service answers again");
  assert.match(await page.textContent("#store-state"), /Memory store answers/);
  assert.ok(page.sins.every((sin) => sin.includes("ERR_CONNECTION_REFUSED")), page.sins.join("\n"));
});

test("the page says in words that the store is unreachable", async () => {
  const port = await new Promise((resolve) => {
    const probe = createServer().listen(0, "127.0.0.1", () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });
  const redis = spawn("redis-server", ["--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", folder()], { stdio: ["ignore", "pipe", "ignore"] });
  running.push({ end: async () => redis.kill("SIGKILL") });
  for await (const chunk of redis.stdout) if (String(chunk).includes("Ready to accept")) break;
  redis.stdout.resume();
  const service = await start(`store: { url: "redis://127.0.0.1:${port}", timeout: 2s }\n${RULES}`);
  await service.check([{ attributes: {} }]);
  const page = await openPage(service);
  await page.waitForSelector("#store-state.fine:has-text('Redis store answers')");
  redis.kill("SIGKILL");
  for (let turn = 0; turn < 20; turn += 1) await service.check([{ attributes: { user_id: String(turn) } }]);
  await page.waitForSelector("#store-state.unreachable:has-text('breaker open'), #store-state.half:has-text('breaker half-open')");
  assert.deepEqual(await faults(page), []);
  await picture(page, "store-unreachable");
  assert.deepEqual(page.sins, []);
});

test("colours are chosen by the system or by a button that remembers", async () => {
  const service = await start(RULES);
  const page = await openPage(service, { dark: true });
  const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const dark = await paper();
  await page.click("#theme");
  assert.match(await page.textContent("#theme"), /light/);
  assert.notEqual(await paper(), dark);
  await page.reload();
  assert.notEqual(await paper(), dark);
  await page.click("#theme");
  assert.equal(await paper(), dark);
});
