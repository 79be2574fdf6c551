// Takes docs/dashboard.png and docs/dashboard-dark.png: two minutes of an attack on the login, and of users whose limit is too low for them.
// `./run picture` sets the same variables as the tests do (world.mjs).
import { closeBrowser, openBrowser, openPage, picture, Service } from "./world.mjs";

const SECONDS = 130;
const RULES = `
rules:
  - { name: everybody, scope: global, key: global, limit: 1_000/s, burst: 2_000 }
  - { name: login, scope: ip, key: "{ip}", limit: 5/min, algorithm: sliding_window_log, when: { path: /login } }
  - { name: free-user, scope: user, key: "{user_id}", limit: 12/min, burst: 3, when: { plan: free } }
`;

const login = (ip) => ({ attributes: { path: "/login", ip } });
const work = (user) => ({ attributes: { path: "/api/reports", plan: "free", user_id: `user-${user}`, ip: `198.51.100.${user}` } });
const plain = () => ({ attributes: { path: "/", ip: "198.51.100.7" } });

// The same traffic each time: a linear congruential generator (Numerical Recipes).
let seed = 42;
const random = (below) => {
  seed = (seed * 1_664_525 + 1_013_904_223) % 2 ** 32;
  return Math.floor((seed / 2 ** 32) * below);
};

// When each user may ask again. Users wait as long as they are asked to; the attacker does not.
const ready = new Array(60).fill(0);

async function users(service, now) {
  const asking = ready.flatMap((at, user) => (at <= now && random(3) === 0 ? [user] : []));
  const answers = await service.check(asking.map(work));
  answers.forEach(({ retry_after_ms: wait }, index) => (ready[asking[index]] = now + (wait ?? 0)));
}

const service = await Service.start(RULES);
await openBrowser();
try {
  const start = Date.now();
  for (let second = 0; second < SECONDS; second += 1) {
    await users(service, Date.now());
    await service.check(Array.from({ length: 25 + random(15) }, plain));
    await service.check(Array.from({ length: 2 }, () => login(`198.51.100.${random(200)}`)));
    if (second > 30) await service.check(Array.from({ length: 8 + random(8) }, () => login("203.0.113.66")));
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, start + (second + 1) * 1_000 - Date.now())));
  }
  for (const dark of [false, true]) {
    const page = await openPage(service, { dark });
    await page.waitForSelector("#rule-cards .rule");
    await page.waitForTimeout(2_500);
    await picture(page, dark ? "dashboard-dark" : "dashboard", { fullPage: false });
  }
} finally {
  await closeBrowser();
  await service.end();
}
