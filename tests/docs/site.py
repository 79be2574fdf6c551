"""Makes links of the book work on the site. mdBook runs it as a preprocessor (docs/book.toml).

Pages link to each other and to files of the repository by relative paths, so that they work wherever the repository is
shown. The site has only what is below docs/. A link that leaves it leads to the chapter that includes the file, or else
to a copy of the file on the site, below `repository/`; `python3 tests/docs/site.py copy FOLDER` puts the copies there
after the build, and `check FOLDER` follows every link of the site.
"""

import html
import json
import os
import re
import shutil
import sys
from pathlib import Path
from urllib.parse import unquote

from markdown import DOCS, INCLUDE, LINK, REPOSITORY, Page

FENCED = re.compile(r"(^ *```.*?^ *```)", re.S | re.M)


def chapters(summary):
    """Every chapter's file, and for one that includes a file from elsewhere, that file."""
    found = {}
    for _, target, _, _ in summary.links:
        path = DOCS / target
        included = INCLUDE.search(path.read_text(encoding="utf-8"))
        found[(path.parent / included[1]).resolve() if included else path] = path
    return found


class Site:
    def __init__(self):
        self.chapters = chapters(Page.read(DOCS / "SUMMARY.md"))

    def place(self, path):
        """Where the site has a file of the repository, below docs/."""
        path = path / "README.md" if (path / "README.md").exists() else path
        if path in self.chapters:
            return self.chapters[path]
        if DOCS in path.parents:
            return path
        # Not `.md.txt`, which mdBook takes for a chapter.
        name = f"{path.relative_to(REPOSITORY)}".removesuffix(".md")
        # A browser shows text, and would download what it does not know.
        return DOCS / "repository" / (f"{name}/index.txt" if path.is_dir() else f"{name}.txt" if path.suffix != ".svg" else name)

    def rewrite(self, text, written_in, shown_in):
        """The text of a file with the links that it needs as a chapter."""

        def link(match):
            target, _, anchor = match[3].partition("#")
            if not target or re.match(r"^\w+:", target) or not (written_in.parent / target).exists():
                return match[0]
            place = self.place((written_in.parent / target).resolve())
            relative = os.path.relpath(place, shown_in.parent) + (f"#{anchor}" if anchor else "")
            return match[0].replace(f"({match[3]}", f"({relative}")

        parts = FENCED.split(text)
        return "".join(part if FENCED.fullmatch(part) else LINK.sub(link, part) for part in parts)

    def chapter(self, chapter):
        path = DOCS / (chapter["source_path"] or chapter["path"])
        included = INCLUDE.search(chapter["content"])
        source = (path.parent / included[1]).resolve() if included else path
        text = source.read_text(encoding="utf-8") if included else chapter["content"]
        chapter["content"] = self.rewrite(text, source, path)
        for item in chapter["sub_items"]:
            self.item(item)

    def item(self, item):
        if isinstance(item, dict) and "Chapter" in item and item["Chapter"].get("path"):
            self.chapter(item["Chapter"])

    def copies(self):
        """Files outside of docs/ that chapters link to, and their places."""
        for source in self.chapters:
            for _, target, _, _ in Page.read(source).links:
                target = target.partition("#")[0]
                path = (source.parent / target).resolve()
                if target and not re.match(r"^\w+:", target):
                    path = path / "README.md" if (path / "README.md").exists() else path
                    place = self.place(path).relative_to(DOCS)
                    if place.parts[0] == "repository":
                        yield path, place


def copy(folder):
    for path, place in sorted(set(Site().copies())):
        target = Path(folder, place)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            names = sorted(f"{each.name}/" if each.is_dir() else each.name for each in path.iterdir())
            target.write_text("\n".join([f"{path.relative_to(REPOSITORY)}/", *names, ""]))
        else:
            shutil.copyfile(path, target)


def check(folder):
    """Every link of the built pages leads to a file of the site, and to an anchor that is there."""
    folder = Path(folder).resolve()
    # print.html is all pages in one, and 404.html is shown at any address.
    pages = {path: path.read_text(encoding="utf-8") for path in folder.rglob("*.html") if path.name not in ["print.html", "404.html", "toc.html"]}
    anchors = {path: set(re.findall(r'\bid="([^"]+)"', text)) for path, text in pages.items()}
    problems = []
    for path, text in pages.items():
        for target in re.findall(r'\b(?:href|src)="([^"]+)"', text):
            file, _, anchor = unquote(html.unescape(target)).partition("#")
            if re.match(r"^\w+:", file) or file.endswith("print.html"):
                continue
            found = (path.parent / file).resolve() if file else path
            if not found.exists():
                problems.append(f"{path.relative_to(folder)}: {target} does not exist")
            elif anchor and found in anchors and anchor not in anchors[found]:
                problems.append(f"{path.relative_to(folder)}: {target}: the page has no such anchor")
    if problems:
        sys.exit("\n".join(problems))
    print(f"site: {len(pages)} pages in {os.path.relpath(folder, REPOSITORY)}")


def main():
    match sys.argv[1:]:
        case ["supports", _]:
            return
        case ["copy", folder]:
            copy(folder)
        case ["check", folder]:
            check(folder)
        case _:
            _, book = json.load(sys.stdin)
            site = Site()
            # mdBook 0.5 calls them items, 0.4 sections.
            for item in book.get("items") or book["sections"]:
                site.item(item)
            json.dump(book, sys.stdout)


if __name__ == "__main__":
    main()
