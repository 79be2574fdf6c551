// A mistake in a file is told in the same words by the service, by this package and by the one for Python.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { ConfigError, Limiter, RuleError } from "tollkeeper";
import { ROOT, folder, output } from "./world.mjs";

const BAD = {
  "a unit": "rules:\n  - { name: a, key: '{user}', limit: 1/fortnight }\n",
  "a field": "rules:\n  - name: a\n    key: '{user}'\n    limit: 1/s\n    brust: 5\n",
  "a key": "rules:\n  - { name: a, key: '{', limit: 1/s }\n",
  "two names": "rules:\n  - { name: a, key: '{user}', limit: 1/s }\n  - { name: a, key: '{ip}', limit: 1/s }\n",
  "a section": "rulez: []\n",
  "a proxy": "trusted_proxies: [localhost]\nrules: []\n",
  "a style": "headers: draft-99\nrules: []\n",
  "a store": "store: { url: 'mysql://127.0.0.1' }\nrules: []\n",
  "no YAML": "rules: [\n",
};

const PYTHON = `
import sys
from tollkeeper import Limiter, TollkeeperError
try:
    Limiter.from_file(sys.argv[1])
except TollkeeperError as error:
    assert isinstance(error, ValueError), type(error)
    print(error)
`;

for (const [what, yaml] of Object.entries(BAD)) {
  test(`${what} that is wrong`, async () => {
    const path = join(folder(), "tollkeeper.yaml");
    writeFileSync(path, yaml);
    const service = await output(join(ROOT, "target/debug/tollkeeper"), ["validate", path]).catch(({ message }) => message);
    const said = await Limiter.fromFile(path).then(
      () => assert.fail("it is accepted"),
      (error) => {
        assert(error instanceof RuleError || error instanceof ConfigError, error);
        return error.message;
      },
    );
    assert.match(said, /tollkeeper\.yaml/);
    const env = { ...process.env, PYTHONPATH: join(ROOT, "bindings/python/python") };
    const { stdout } = await output("python3", ["-c", PYTHON, path], { env });
    assert.equal(stdout.trim(), said.trim(), "Python says it in other words");
    assert(service.includes(said.trim()), `the service says: ${service}\nthis package says: ${said}`);
  });
}
