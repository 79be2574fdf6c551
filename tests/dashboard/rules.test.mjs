// Rules that are kept in Postgres (TOLLKEEPER_POSTGRES is its address): made, changed, removed and rolled back.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { closeBrowser, faults, openBrowser, openPage, picture, Service } from "./world.mjs";

let service, page;

before(async () => {
  await openBrowser();
  service = await Service.start(`rules_from: ${process.env.TOLLKEEPER_POSTGRES}\n`);
  page = await openPage(service, { path: "/#rules" });
});
after(async () => {
  await closeBrowser();
  await service?.end();
});

const closed = () => page.waitForSelector("#ask", { state: "hidden" });
const row = (name) => page.locator("#rules-table tbody tr", { hasText: name });

test("a rule is made, and its mistakes are explained where they are", async () => {
  await page.click("#rule-new");
  await page.fill("#ask [name=name]", "login");
  await page.fill("#ask [name=key]", "{ip}");
  await page.fill("#ask [name=limit]", "ten a day");
  await page.click("#ask-ok");
  await page.waitForSelector("#ask .of-field >> text=is not a whole number");
  assert.equal(await page.evaluate(() => document.activeElement.name), "limit");
  assert.deepEqual(await faults(page), []);
  await picture(page, "rule-mistake");
  await page.fill("#ask [name=limit]", "5/min");
  await page.fill("#ask [name=more]", "{nope");
  await page.click("#ask-ok");
  await page.waitForSelector("#ask .of-field >> text=this is not JSON");
  await page.fill("#ask [name=more]", '{"when": {"path": ["/login", "/v1/login"]}}');
  await page.fill("#ask [name=message]", "stop the guessing");
  await page.fill("#ask [name=as]", "<b>ann</b>");
  await page.click("#ask-ok");
  await closed();
  await row("login").waitFor();
  assert.match(await row("login").textContent(), /path: \/login, \/v1\/login.*5\/min/);
  // The browser notes refused requests by itself.
  assert.ok(page.sins.every((sin) => sin.includes("400")), page.sins.join("\n"));
});

test("a change keeps what the form has no field for, and is a version", async () => {
  await row("login").getByRole("button", { name: "Edit login" }).click();
  assert.match(await page.inputValue("#ask [name=more]"), /v1\/login/);
  await page.fill("#ask [name=limit]", "7/min");
  await page.click("#ask-ok");
  await closed();
  await row("7/min").waitFor();
  assert.match(await row("login").textContent(), /\/v1\/login/);
  const newest = page.locator("#versions li").first();
  assert.match(await newest.textContent(), /in force.*login: .*5 → 7/);
  assert.match(await page.textContent("#versions"), /stop the guessing/);
  assert.match(await page.textContent("#versions"), /<b>ann<\/b>/);
  assert.deepEqual(await faults(page), []);
  await picture(page, "rules-history");
});

test("a removed rule comes back by a rollback", async () => {
  await row("login").getByRole("button", { name: "Remove login" }).click();
  await page.click("#ask-ok");
  await closed();
  await page.waitForSelector("#rules-table >> text=There are no rules");
  await page.locator("#versions > li", { hasText: "stop the guessing" }).getByRole("button").click();
  await page.click("#ask-ok");
  await closed();
  await row("5/min").waitFor();
});
