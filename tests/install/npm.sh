# The npm packages: installed with npm, offline, and asked.
set -euo pipefail
mkdir /tmp/app
cd /tmp/app
echo '{ "name": "app", "private": true }' >package.json
# Those of other platforms are optional and not published here; the addon is named by its file.
node /npm/bin/npm-cli.js install --silent --offline --no-audit --no-fund --omit=optional /artifacts/tollkeeper-[0-9]*.tgz
node /npm/bin/npm-cli.js install --silent --offline --no-audit --no-fund --no-save --omit=optional /artifacts/tollkeeper-linux-*.tgz
node -e '
const { keyed, Limiter } = require("tollkeeper");
const assert = require("node:assert");
const limiter = keyed("2/min");
assert.deepEqual([1, 2, 3].map(() => limiter.check("a").allowed), [true, true, false]);
(async () => {
  const rules = Limiter.fromRules([{ name: "per-user", key: "{user_id}", limit: "1/min" }]);
  const answers = [(await (await rules).check({ user_id: "42" })).allowed, (await (await rules).check({ user_id: "42" })).allowed];
  assert.deepEqual(answers, [true, false]);
  console.log("npm", require("tollkeeper/package.json").version);
})();
'
