"""Writes the parts of the pages that come from the code, so that they cannot go stale.

    ./run reference        writes them
    ./run pages            compares them, and says which differ

A part stands between two comments, `<!-- generated: KIND ARGUMENTS -->` and `<!-- /generated -->`. Each kind is a function
in `parts/`. Most are answers of the service itself, so it needs the binary in target/debug.
"""

import re
import shlex
import sys

from markdown import pages
from parts.answers import headers, problems, resp_commands
from parts.commands import commands
from parts.configuration import configuration
from parts.files import figures, file
from parts.measured import alert, every_alert_has_a_runbook, metrics
from parts.openapi import openapi
from parts.redis_keys import redis_keys

PART = re.compile(r"(<!-- generated: ([^\n]+) -->\n)[^\0]*?(<!-- /generated -->)")
PARTS = {
    "alert": alert,
    "commands": commands,
    "configuration": configuration,
    "figures": figures,
    "file": file,
    "headers": headers,
    "metrics": metrics,
    "openapi": openapi,
    "problems": problems,
    "redis_keys": redis_keys,
    "resp": resp_commands,
}


def main():
    writes = sys.argv[1:] == ["--write"]
    every_alert_has_a_runbook()
    stale, count = [], 0
    for page in pages():
        if "<!-- generated: " not in page.text or page.name.startswith("tests/"):
            continue

        def part(match):
            name, *arguments = shlex.split(match[2])
            return f"{match[1]}\n{PARTS[name](*arguments)}\n\n{match[3]}"

        text, found = PART.subn(part, page.text)
        if found != page.text.count("\n<!-- generated: ") + page.text.startswith("<!-- generated: "):
            sys.exit(f"{page.name}: a generated part does not end with <!-- /generated -->")
        count += found
        if text != page.text:
            stale.append(page.name)
            if writes:
                page.path.write_text(text)
    if stale and not writes:
        sys.exit(f"these pages are not what the code says; `./run reference` writes them: {', '.join(stale)}")
    print(f"reference: {count} parts" + (f", written: {', '.join(stale)}" if stale else ""))


if __name__ == "__main__":
    main()
