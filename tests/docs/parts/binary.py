"""The binary that the pages are written from, and tables and plain text for them."""

import os
import re
import subprocess
from pathlib import Path

from markdown import REPOSITORY

BINARY = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")).resolve() / "debug" / "tollkeeper"
# Without variables of this machine: `--help` shows them.
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("TOLLKEEPER_", "OTEL_"))}


def tollkeeper(*arguments, **options):
    return subprocess.run([BINARY, *arguments], env=CLEAN, capture_output=True, text=True, **options)


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(re.sub(r"(?<!\\)\|", r"\|", cell).strip() for cell in line) + " |" for line in lines)


def plain(text):
    return re.sub(r"\s+", " ", text)
