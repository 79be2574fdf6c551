// Exceptions for single keys, made and ended in the key inspector.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { closeBrowser, faults, openBrowser, openPage, picture, RULES, Service, traffic } from "./world.mjs";

let service, page;

before(async () => {
  await openBrowser();
  service = await Service.start(RULES);
  await traffic(service);
  page = await openPage(service, { path: "/#keys" });
  await page.waitForSelector("#inspect [name=rule] option[value=login]", { state: "attached" });
  await page.fill("#inspect [name=key]", "198.51.100.1");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".bucket.allowed");
});
after(async () => {
  await closeBrowser();
  await service?.end();
});

const done = async () => {
  await page.click("#ask-ok");
  await page.waitForSelector("#ask", { state: "hidden" });
};

test("a key is blocked, shown with its end and reason, and unblocked", async () => {
  await page.click("text=Block…");
  await page.fill("#ask [name=reason]", "<i>scraper</i>");
  await done();
  await page.waitForSelector(".bucket.denied >> text=Blocked by an exception");
  assert.match(await page.textContent(".exception"), /Block.*until.*<i>scraper<\/i>/);
  assert.match(await page.textContent(".bucket .why"), /An exception denies every request/);
  assert.deepEqual(await faults(page), []);
  await picture(page, "blocked");
  await page.click('nav a[href="#exceptions"]');
  const row = page.locator("#exceptions-table tbody tr", { hasText: "198.51.100.1" });
  await row.waitFor();
  assert.match(await row.textContent(), /login.*Block.*<i>scraper<\/i>.*admin token/);
  assert.match(await page.textContent("#exceptions-note"), /^1 exception in force/);
  await page.waitForSelector("#actions-table >> text=blocked");
  assert.deepEqual(await faults(page), []);
  await picture(page, "exceptions");
  await row.locator("a.key").click();
  await page.waitForSelector(".exception");
  await page.click(".exception button");
  await done();
  await page.waitForSelector(".exception", { state: "detached" });
});

test("a grant that is no limit is explained", async () => {
  await page.click("text=Grant a limit…");
  await page.fill("#ask [name=limit]", "lots");
  await page.click("#ask-ok");
  await page.waitForSelector("#ask .of-field >> text=is not a whole number");
  await page.fill("#ask [name=limit]", "100/min");
  await done();
  await page.waitForSelector(".exception >> text=100/min");
});
