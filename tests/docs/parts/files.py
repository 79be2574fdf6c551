"""Files of the repository, and figures from the tables of the benchmarks."""

import re
import sys
from pathlib import Path

from markdown import REPOSITORY
from parts.binary import table


def file(name, language=None):
    language = language or {".yaml": "yaml", ".py": "python", ".mjs": "js", ".rs": "rust", ".conf": "nginx", ".lua": "lua", ".go": "go", ".java": "java"}.get(
        Path(name).suffix, "text"
    )
    text = (REPOSITORY / name).read_text().rstrip("\n")
    return f"```{language}\n{text}\n```"


def figures(name, heading, first, *columns):
    """Some columns of the table under a heading whose first column is `first`; a heading `-` is the whole page."""
    lines = (REPOSITORY / name).read_text().splitlines()
    start = next((at for at, line in enumerate(lines) if line.strip("# ") == heading), None) if heading != "-" else 0
    if start is None:
        sys.exit(f"{name} has no heading {heading!r} any more, whose figures pages quote")
    tables, inside = [], False
    for line in lines[start + 1 :]:
        if line.startswith("## ") and heading != "-":
            break
        if line.startswith("|"):
            tables += [] if inside else [[]]
            tables[-1].append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
        inside = line.startswith("|")
    found = next((each for each in tables if each[0][0] == first), None)
    if found is None:
        sys.exit(f"{name}, {heading}: there is no table any more whose first column is {first!r}, which a page quotes")
    head, _, *rows = found
    columns = [first, *columns] if columns else head
    missing = [column for column in columns if column not in head]
    if missing:
        sys.exit(f"{name}, {heading}: the table has no column {missing}; it has {head}")
    chosen = range(len(head)) if columns is head else [head.index(column) for column in columns]
    return table([head[at] for at in chosen], [[row[at] for at in chosen] for row in rows])
