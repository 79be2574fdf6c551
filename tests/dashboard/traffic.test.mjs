// The first view: numbers that move, findings, hot keys, and texts that attackers chose.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { closeBrowser, faults, openBrowser, openPage, picture, RULES, Service, traffic } from "./world.mjs";

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

const number = async (selector) => Number((await page.textContent(selector)).replaceAll(",", "").match(/[\d.]+/)?.[0]);

test("numbers appear and move", async () => {
  assert.equal(await page.locator("#rule-cards .rule").count(), 6);
  assert.match(await page.textContent("#store-state"), /Memory store answers/);
  const before = await number("#tile-rate-note");
  assert.ok(before > 600 && before < 700, `requests, not decisions: ${before}`);
  await service.check(Array.from({ length: 50 }, () => ({ attributes: {} })));
  await page.waitForFunction((old) => Number(document.querySelector("#tile-rate-note").textContent.replaceAll(",", "").match(/\d+/)[0]) >= old + 50, before);
  assert.match(await page.textContent("#tile-denied"), /%/);
  assert.match(await page.textContent("#updated"), /updated/);
});

test("an attack and a limit that is too low are distinguished", async () => {
  const found = await page.locator("#attention-list li").allTextContents();
  const of = (name) => found.find((text) => text.startsWith(name));
  assert.match(of("login"), /looks like abuse/);
  assert.match(of("free-user"), /would have denied nobody/);
  assert.match(of("login"), /Block this key…/);
  assert.match(of("free-user"), /Set \d+\/s with burst \d+…/);
  assert.equal(of("everybody"), undefined);
  assert.match(await page.textContent("#rule-everybody .finding"), /[Nn]obody was denied/);
  assert.match(await page.textContent("#rule-watched .chips"), /shadow/);
});

test("hot keys have their bounds, and secrets only a fingerprint", async () => {
  await page.click("#attention-list a:text-is('login')");
  await page.waitForSelector("#rule-login .hot table");
  const hot = page.locator("#rule-login .hot table").last();
  assert.match(await hot.locator("tbody tr").first().textContent(), /203\.0\.113\.66/);
  assert.match(await hot.textContent(), /Waits kept/);
  await page.click("#rule-by-key summary");
  await page.waitForSelector("#rule-by-key .hot table");
  assert.match(await page.textContent("#rule-by-key .hot"), /sha256:[0-9a-f]{16}/);
  assert.doesNotMatch(await page.content(), /k-secret-1/);
});

test("what attackers choose stays text", async () => {
  const text = await page.textContent("#rule-login .hot");
  assert.ok(text.includes("<img src=x onerror="), text);
  assert.ok(text.includes("abc\\u{202e}gnp.exe\\u{202c}"), "a line that would be turned around is spelled out");
  assert.ok(text.includes("line\\u{a}break\\u{0}\\u{1b}[2J\\u{200b}"));
  assert.equal(await page.locator("main img, main script").count(), 0);
  assert.equal(await page.title(), "Traffic · Tollkeeper");
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "a long key makes nothing wide");
});

test("the same numbers are there as a table", async () => {
  await page.click("#traffic-chart ~ details summary");
  await page.waitForSelector("#traffic-table tbody tr");
  assert.match(await page.textContent("#traffic-table"), /Allowed/);
  assert.match(await page.getAttribute("#traffic-chart svg", "aria-label"), /allowed and [\d,]+ denied/);
  await page.click("text=6 h");
  assert.equal(await page.getAttribute("[data-range=minutes]", "aria-pressed"), "true");
  await page.click("text=5 min");
  await page.click("#traffic-chart ~ details summary");
});

test("no markup can be made of text, and nothing else may run", async () => {
  const refused = await page.evaluate(() => {
    try {
      document.body.insertAdjacentElement("beforeend", document.createElement("p")).innerHTML = "<b>x</b>";
      return "made";
    } catch (error) {
      return error.name;
    }
  });
  assert.equal(refused, "TypeError");
  await page.evaluate(() => {
    const script = document.createElement("script");
    try { script.text = "document.title = 'owned'"; } catch {}
    script.append("document.title = 'owned'");
    document.body.append(script);
  });
  assert.equal(await page.title(), "Traffic · Tollkeeper");
  assert.ok(page.sins.length > 0, "the browser said so");
  page.sins.length = 0;
  await page.reload();
  await page.waitForSelector("#rule-cards .rule");
});

test("every view is accessible and fits, on phones and in the dark", async () => {
  for (const width of [360, 768, 1440]) {
    await page.setViewportSize({ width, height: 900 });
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      for (const view of ["traffic", "violations", "keys", "exceptions", "rules"]) {
        if (view !== "traffic" && width === 768) continue;
        await page.click(`nav a[href="#${view}"]`);
        if (view === "traffic") await page.evaluate(() => document.querySelectorAll("#rule-login details").forEach((one) => { one.open = true; }));
        if (view === "violations") await page.waitForSelector("#found tbody tr");
        if (view === "rules") await page.waitForSelector("#rules-table tbody tr");
        if (view === "keys") {
          // Its bucket is in use, however long the views before took.
          await service.check(Array.from({ length: 6 }, () => ({ attributes: { path: "/login", ip: "203.0.113.66" } })));
          await page.fill("#inspect [name=key]", "203.0.113.66");
          await page.keyboard.press("Enter");
          await page.waitForSelector(".bucket");
        }
        const where = `${view}-${width}-${colorScheme}`;
        assert.deepEqual(await faults(page), [], where);
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${where} is too wide`);
        await picture(page, where);
      }
    }
  }
});

// 50 requests that no rule matched were "No traffic yet".
test("traffic without a rule is reported, with what it lacks", async () => {
  const other = await Service.start('rules: [{ name: free, key: "{user_id}", limit: 9/s, when: { plan: free } }]');
  try {
    await other.check(Array.from({ length: 50 }, () => ({ attributes: { user_id: "7" } })));
    const shown = await openPage(other);
    await shown.waitForSelector("#attention-list >> text=100 % of requests matched no rule");
    assert.match(await shown.textContent("#attention-list"), /all of these lack `plan`/);
    assert.equal(await shown.isVisible("#empty"), false);
    assert.match(await shown.textContent("#tile-no-rule-note"), /^50 in all, 100 %/);
    assert.equal(await shown.textContent("#tile-denied-note"), "0 in all, 0 %");
    assert.deepEqual(await faults(shown), []);
    await picture(shown, "no-rule");
  } finally {
    await other.end();
  }
});

test("one click from a finding blocks the attacker, with an end", async () => {
  await page.click('nav a[href="#traffic"]');
  await page.click("#attention-list >> text=Block this key…");
  await page.waitForSelector("#ask[open] >> text=203.0.113.66");
  assert.equal(await page.inputValue("#ask [name=for_ms]"), "3600000");
  assert.deepEqual(await faults(page), []);
  await picture(page, "block-advice");
  await page.click("#ask-ok");
  await page.waitForSelector("#ask", { state: "hidden" });
  await service.check(Array.from({ length: 30 }, () => ({ attributes: { path: "/login", ip: "203.0.113.66" } })));
  await page.waitForFunction(() => ![...document.querySelectorAll("#attention-list li.abuse")].some((one) => one.textContent.startsWith("login")));
  assert.match(await page.textContent("#rule-login .finding"), /30 requests of blocked keys were denied/);
});

test("rules of a file are explained with the numbers of the finding", async () => {
  await page.click("#attention-list >> text=/Set .* with burst/");
  await page.waitForSelector("#ask[open] .snippet");
  assert.match(await page.textContent("#ask .snippet"), /name: free-user\s+limit: \d+\/s\s+burst: \d+/);
  await page.waitForSelector("#ask .preview >> text=/Would have denied 0 % of requests/");
  await picture(page, "limit-advice");
  await page.click("#ask-ok");
  await page.waitForSelector("#ask", { state: "hidden" });
});

test("nothing went wrong on the way, and nothing left the service", () => assert.deepEqual(page.sins, []));
