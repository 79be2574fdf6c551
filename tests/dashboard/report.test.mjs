// The page of `tollkeeper tune --html`: one file, opened from disk, in light and dark, wide and on a phone.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { closeBrowser, faults, folder, openBrowser, openPage, picture } from "./world.mjs";

const binary = process.env.TOLLKEEPER_BINARY;
const place = folder();
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("TOLLKEEPER_")));
const run = (...args) => execFileSync(binary, args, { env, cwd: place, maxBuffer: 1 << 28 });
const served = (file) => ({ url: "file://", page: `file://${join(place, file)}` });

before(async () => {
  await openBrowser();
  const log = run("tune", "--sample", "30000").toString();
  // A client chooses its address in some formats, and always its path: neither may become markup.
  const hostile = `</script><img/src=x/onerror=document.title='owned'> - - [05/Jan/2026:12:00:00 +0000] "GET /<script>document.title='owned'</script> HTTP/1.1" 404 1 "-" "x"\n`;
  writeFileSync(join(place, "access.log"), log + hostile.repeat(400));
  writeFileSync(join(place, "rules.yaml"), `
rules:
  - { name: per-address, key: "{ip}", limit: 10/min, burst: 5 }
  - { name: login, key: "{ip}", limit: 2/min, when: { path: /login } }
  - { name: watched, key: "{ip}", limit: 100/h, mode: shadow }
`);
  writeFileSync(join(place, "other.yaml"), `rules: [{ name: per-address, key: "{ip}", limit: 30/min }]`);
  run("tune", "access.log", "-c", "rules.yaml", "--compare", "other.yaml", "--html", "tried.html");
  run("tune", "access.log", "--html", "asked.html");
});
after(closeBrowser);

for (const [name, width, dark] of [["wide", 1440, false], ["phone", 390, false], ["dark", 1440, true]]) {
  test(`the page is whole: ${name}`, async () => {
    for (const file of ["tried", "asked"]) {
      const page = await openPage(served(`${file}.html`), { width, dark });
      await page.waitForSelector("h2");
      await picture(page, `report-${file}-${name}`);
      assert.deepEqual(page.sins, []);
      assert.notEqual(await page.title(), "owned");
      assert.deepEqual(await faults(page), []);
      const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wider <= 0, `${file} is ${wider} px wider than the screen`);
      await page.context().close();
    }
  });
}

test("on paper the page is light and whole", async () => {
  for (const file of ["tried", "asked"]) {
    const page = await openPage(served(`${file}.html`), { width: 794, dark: true });
    await page.emulateMedia({ media: "print", colorScheme: "dark" });
    await page.evaluate(() => dispatchEvent(new Event("beforeprint")));
    await picture(page, `report-${file}-print`);
    assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), "rgb(255, 255, 255)");
    const cut = await page.evaluate(() => [...document.querySelectorAll(".scroll, pre")]
      .filter((one) => one.getBoundingClientRect().right > innerWidth || one.scrollWidth > one.clientWidth + 1).length);
    assert.equal(cut, 0, `${file}: tables or texts do not fit the paper`);
    assert.equal(await page.locator("details:not([open])").count(), 0);
    const pdf = await page.pdf({ format: "A4" });
    assert.equal(pdf.subarray(0, 5).toString(), "%PDF-");
    await page.context().close();
  }
});

test("rules have their chart, their limit, who they deny and alternative limits", async () => {
  const page = await openPage(served("tried.html"));
  const text = await page.innerText("main");
  for (const part of ["per-address: 10/min with burst 5", "Alternative limits", "Keys by rate", "203.0.113.7", "With the other rules", "Hours of the week"]) {
    assert.ok(text.includes(part), `${part} is missing`);
  }
  assert.equal(await page.locator("svg .limit").count(), 4, "three rules and one to compare");
  assert.ok(await page.locator("svg .bar-deny").count() > 10);
  await page.context().close();
});

test("without rules nothing is said about denials", async () => {
  const page = await openPage(served("asked.html"));
  assert.ok(!(await page.innerText("main")).includes("would have been denied\n"));
  assert.equal(await page.locator("svg .bar-deny").count(), 0);
  await page.context().close();
});

test("tables sort by every column, by keyboard too", async () => {
  const page = await openPage(served("asked.html"));
  const table = page.locator('table[aria-label="Busiest by address"]');
  const numbers = async () => (await table.locator("tbody td:nth-child(2)").allInnerTexts()).map((text) => Number(text.replaceAll(",", "")));
  await table.getByRole("button", { name: "requests" }).focus();
  await page.keyboard.press("Enter");
  assert.deepEqual(await numbers(), [...await numbers()].sort((a, b) => b - a));
  await page.keyboard.press("Enter");
  assert.deepEqual(await numbers(), [...await numbers()].sort((a, b) => a - b));
  await page.context().close();
});

test("nothing comes from elsewhere", () => {
  const page = readFileSync(join(place, "tried.html"), "utf8");
  assert.ok(!/(src|href)="(https?:)?\/\//.test(page));
  assert.ok(page.includes("default-src 'none'"));
});
