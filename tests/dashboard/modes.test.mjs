// What passes although a rule is over its limit: it has a mark of its own, by the rule's mode, and is never called denied.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { closeBrowser, faults, openBrowser, openPage, picture, Service } from "./world.mjs";

const RULES = `
rules:
  - { name: trial, key: "{user}", limit: 2/h, mode: shadow }
  - { name: soft, key: "{user}", limit: "3/h", mode: annotate }
  - { name: north, key: "{user}", limit: 4/h, mode: quota }
  - { name: south, key: "{user}", limit: "100,000/day", mode: quota }
`;

let service, page;

before(async () => {
  await openBrowser();
  service = await Service.start(RULES);
  await service.check(Array.from({ length: 10 }, () => ({ attributes: { user: "a" } })));
  page = await openPage(service);
  await page.waitForSelector("#rule-cards .rule");
});
after(async () => {
  await closeBrowser();
  await service?.end();
});

const card = (name) => page.textContent(`#rule-${name}`);

test("each card says what became of requests over its limit", async () => {
  assert.match(await card("trial"), /would deny of all80 %/);
  assert.match(await card("soft"), /annotated of all70 %/);
  assert.match(await card("north"), /over quota of all60 %/);
  assert.match(await card("south"), /100,000\/day/);
  assert.match(await page.textContent("#tile-denied-note"), /^0 in all, 0 %; shadow rules would deny 8; 7 annotated$/);
  assert.deepEqual(await faults(page), []);
  await picture(page, "modes");
});

test("violations are marked, and a key is explained", async () => {
  await page.goto(`${service.url}/#violations`);
  for (const mode of ["shadow", "annotate", "quota"]) await page.waitForSelector(`#view-violations .chip >> text=${mode}`);
  await page.goto(`${service.url}/#keys?rule=soft&key=a`);
  await page.waitForSelector("text=The rule is a soft limit: requests over it pass, marked for the upstream.");
});
