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
  await page.fill("#ask [name=more]", "");
  await page.click("text=Add a condition");
  await page.fill("#ask .row input", "path");
  await page.fill("#ask .row textarea", "/login\n/v1/login");
  await page.waitForSelector("#ask .preview >> text=save it in shadow mode first");
  await picture(page, "rule-form");
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
  assert.equal(await page.inputValue("#ask .row textarea"), "/login\n/v1/login");
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

test("a change is tried on past requests before it is saved, and conditions are rows", async () => {
  await service.check(Array.from({ length: 10 }, () => ({ attributes: { path: "/login", ip: "203.0.113.9" } })));
  await row("login").getByRole("button", { name: "Edit login" }).click();
  await page.fill("#ask [name=limit]", "4/min");
  await page.waitForSelector("#ask .preview >> text=Would have denied 60 % of requests and 100 % of keys");
  assert.match(await page.textContent("#ask .preview"), /30 % of requests were denied/);
  await page.selectOption("#ask .row select", "not");
  await page.waitForSelector("#ask .preview >> text=only changes to the limit");
  await page.click("#ask-ok");
  await closed();
  await page.waitForSelector("#rules-table >> text=is none of /login, /v1/login");
  await page.setViewportSize({ width: 390, height: 900 });
  await row("login").getByRole("button", { name: "Edit login" }).click();
  assert.deepEqual(await faults(page), []);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "the form fits a phone");
  await picture(page, "rule-form-phone");
  await page.click("#ask-cancel");
  await page.setViewportSize({ width: 1440, height: 1000 });
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
