// The key inspector, the search among violations, and the rules: by keyboard where it matters.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { closeBrowser, HOSTILE, openBrowser, openPage, picture, refusal, RULES, Service, traffic } from "./world.mjs";

let service, page;

before(async () => {
  await openBrowser();
  service = await Service.start(RULES);
  await traffic(service);
  page = await openPage(service);
  await page.waitForSelector("#rule-cards .rule");
});
after(async () => {
  await closeBrowser();
  await service?.end();
});

const inspect = async (key) => {
  await page.click('nav a[href="#keys"]');
  await page.selectOption("#inspect [name=rule]", "");
  await page.fill("#inspect [name=key]", key);
  await page.keyboard.press("Enter");
};

test("the keyboard reaches the content, the views and a key", async () => {
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to the content");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  await page.focus('nav a[href="#violations"]');
  await page.keyboard.press("Enter");
  await page.waitForSelector("#found tbody tr");
  assert.equal(await page.getAttribute('nav a[href="#violations"]', "aria-current"), "page");
  await page.locator("#found a.key").first().focus();
  await page.keyboard.press("Enter");
  await page.waitForSelector("#inspected .card");
});

test("a denied key is shown with the reason and when it passes", async () => {
  await inspect("203.0.113.66");
  await page.waitForSelector(".bucket.denied");
  assert.match(await page.textContent(".bucket .verdict"), /Denied now/);
  const seconds = async () => Number((await page.textContent(".countdown")).match(/passes in ([\d.]+) s/)[1]);
  const first = await seconds();
  assert.ok(first > 0 && first <= 60);
  await page.waitForFunction((old) => Number(document.querySelector(".countdown").textContent.match(/[\d.]+/)[0]) < old, first);
  assert.match(await page.textContent(".bucket .why"), /5\/min sliding window log for each \{ip\}.*retries without waiting/);
  assert.ok(await page.locator("#inspected table tbody tr").count() > 0, "its denials are listed");
  assert.equal(new URL(page.url()).search, "", "browsers would send it");
  assert.equal(new URL(page.url()).hash, "#keys?key=203.0.113.66");
});

test("a reset asks first, can be left by Escape, and lets the key pass", async () => {
  await page.focus("[data-key='reset login']");
  await page.keyboard.press("Enter");
  await page.waitForSelector("#ask[open]");
  await picture(page, "reset");
  await page.keyboard.press("Escape");
  await page.waitForSelector("#ask", { state: "hidden" });
  assert.equal(await page.locator(".bucket.denied").count(), 1);
  await page.focus("[data-key='reset login']");
  await page.keyboard.press("Enter");
  await page.click("#ask-ok");
  await page.waitForSelector("#ask", { state: "hidden" });
  await page.waitForSelector("#inspected .nothing");
  assert.equal(await page.textContent("#announce"), "The bucket was reset");
  const [verdict] = await service.check([{ attributes: { path: "/login", ip: "203.0.113.66" } }]);
  assert.equal(verdict.allowed, true);
  await page.waitForSelector(".bucket.allowed");
});

test("a countdown that is over is looked at again", async () => {
  await service.check(Array.from({ length: 3 }, () => ({ attributes: { plan: "free", user_id: "late" } })));
  await inspect("late");
  await page.waitForSelector(".bucket.allowed >> text=Passes now");
});

test("a hostile key and a secret can be inspected", async () => {
  await inspect(HOSTILE[0]);
  await page.waitForSelector(".bucket.denied");
  assert.equal(await page.title(), "Keys · Tollkeeper");
  await inspect("sha256:0123456789abcdef");
  await page.waitForSelector("text=known here by its fingerprint only");
  await inspect("k-secret-1");
  await page.waitForSelector(".bucket.denied >> text=by-key");
  await inspect("nobody-knows-it");
  await page.waitForSelector("text=its next request passes");
});

// The address of an attacker that was denied 25 times a second gave "its next request passes": the key of the rule has more parts.
test("an address finds the buckets of rules whose keys contain it", async () => {
  const checks = Array.from({ length: 4 }, () => ({ attributes: { tenant: "acme", ip: "192.0.2.77", path: "/x" } }));
  await service.check(checks);
  await inspect("192.0.2.77");
  await page.waitForSelector(".bucket.denied >> text=acme:192.0.2.77");
  assert.ok(await page.locator("#inspected table tbody tr").count() > 0, "its denials are listed");
});

test("a link carries rule and key", async () => {
  const other = await openPage(service, { path: "/#keys?rule=login&key=198.51.100.3" });
  await other.waitForSelector(".bucket >> text=login");
  assert.equal(await other.inputValue("#inspect [name=key]"), "198.51.100.3");
  assert.equal(await other.inputValue("#inspect [name=rule]"), "login");
  await other.goto(`${service.url}/#violations?rule=login&ip=203.0.113.0%2F24`);
  await other.waitForFunction(() => document.querySelectorAll("#found tbody tr").length > 0 && [...document.querySelectorAll("#found tbody tr")].every((row) => row.textContent.includes("203.0.113.66")));
  assert.deepEqual(other.sins, []);
});

// Enter in an edited field searched twice, for the change and for the submit. The browser noted the second refusal at any later time,
// where another test found it.
test("violations are found by rule, key and network, and a mistake is explained", async () => {
  await page.click('nav a[href="#violations"]');
  await page.selectOption("#violation-filter [name=rule]", "login");
  await page.fill("#violation-filter [name=ip]", "203.0.113.0/24");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => [...document.querySelectorAll("#found tbody tr")].every((row) => row.textContent.includes("203.0.113.66")));
  page.sins.length = 0;
  await page.fill("#violation-filter [name=ip]", "1.2.3");
  await page.keyboard.press("Enter");
  await page.waitForSelector("#violation-error:has-text('is not an address or a network')");
  await refusal(page, 400);
  await page.fill("#violation-filter [name=ip]", "192.0.2.1");
  await page.click("#violation-filter .primary");
  await page.waitForSelector("text=Nothing matches");
  await page.click("text=Clear");
  await page.waitForSelector("#found tbody tr");
});

// The state of the store was missing until the second answer when the page was opened at another view than the first.
test("every view can be the first one", async () => {
  const other = await openPage(service, { path: "/#rules" });
  await other.waitForSelector("#rules-table tbody tr");
  assert.match(await other.textContent("#store-state"), /Memory store answers/);
  assert.deepEqual(other.sins, []);
});

test("rules of a file are shown and not edited", async () => {
  await page.click('nav a[href="#rules"]');
  await page.waitForSelector("#rules-table tbody tr");
  assert.equal(await page.locator("#rules-table tbody tr").count(), 6);
  assert.match(await page.textContent("#rules-source"), /configuration file/);
  assert.equal(await page.isVisible("#rule-new"), false);
  assert.deepEqual(page.sins, []);
});
