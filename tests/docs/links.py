"""Checks the Markdown of the repository and the shape of the book, without a network:

- every relative link leads to a file, and every anchor to a heading;
- every page below docs/ is in docs/SUMMARY.md, once;
- pictures have a text for those who cannot see them.

Run with `python3 tests/docs/links.py`, or as a part of `./run docs`.
"""

import re
import sys
from urllib.parse import unquote

from markdown import DOCS, INCLUDE, REPOSITORY, Page, pages

ELSEWHERE = re.compile(r"^(https?:|mailto:)")


def problems_of(page, by_path):
    for line, target, is_image, text in page.links:
        if ELSEWHERE.match(target):
            continue
        if is_image and not text.strip():
            yield f"{page.name}:{line}: the picture {target} has no text"
        file, _, anchor = unquote(target).partition("#")
        path = (page.path.parent / file).resolve() if file else page.path
        if not path.exists():
            yield f"{page.name}:{line}: {target} does not exist"
        elif REPOSITORY not in [path, *path.parents]:
            yield f"{page.name}:{line}: {target} is outside of the repository"
        elif anchor and path.suffix == ".md" and anchor not in anchors(by_path[path], by_path):
            yield f"{page.name}:{line}: {target}: the page has no heading #{anchor}"


def anchors(page, by_path):
    """Those of the page, and of what it includes."""
    included = [by_path[(page.path.parent / name).resolve()] for name in INCLUDE.findall(page.text)]
    return page.anchors + [anchor for each in included for anchor in each.anchors]


def problems_of_book(by_path):
    summary = by_path[DOCS / "SUMMARY.md"]
    listed = [(DOCS / target).resolve() for _, target, _, _ in summary.links]
    for path in sorted(set(listed)):
        if listed.count(path) > 1:
            yield f"docs/SUMMARY.md: {path.relative_to(DOCS)} is listed twice"
    for path in sorted(by_path):
        if DOCS in path.parents and path != summary.path and path not in listed:
            yield f"docs/SUMMARY.md: {path.relative_to(DOCS)} is missing"


def main():
    by_path = {page.path: page for page in pages()}
    problems = [problem for page in by_path.values() for problem in problems_of(page, by_path)]
    problems += problems_of_book(by_path)
    print("\n".join(problems), file=sys.stderr, end="\n" if problems else "")
    if problems:
        return 1
    print(f"links: {sum(len(page.links) for page in by_path.values())} on {len(by_path)} pages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
