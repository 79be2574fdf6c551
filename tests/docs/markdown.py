"""The Markdown of this repository, as far as the checks need it: pages with their headings, links and code blocks."""

import re
import subprocess
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"

FENCE = re.compile(r"^( *)(```+|~~~+)\s*(.*)$")
COMMENT = re.compile(r"<!--(.*?)-->", re.S)
LINK = re.compile(r"(?<!\\)(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(\s*<?([^()\s<>]*)>?(?:\s+\"[^\"]*\")?\s*\)")
REFERENCE = re.compile(r"^\[[^\]]+\]:\s+(\S+)", re.M)
HTML = re.compile(r"<(?:a|img|source)\b[^>]*?\b(?:href|src|srcset)=\"([^\"]+)\"")
INLINE_CODE = re.compile(r"(`+).*?\1", re.S)
INCLUDE = re.compile(r"^\{\{#include ([^}]+)\}\}\s*$", re.M)


@dataclass
class Block:
    """A fenced code block, and the comment right before it."""

    line: int
    language: str
    text: str
    note: str = ""


@dataclass
class Page:
    path: Path
    text: str = field(repr=False)

    @classmethod
    def read(cls, path):
        return cls(path, path.read_text(encoding="utf-8"))

    @property
    def name(self):
        return str(self.path.relative_to(REPOSITORY))

    @cached_property
    def parts(self):
        """The page as (line number, kind, content): lines of text, comments and code blocks, in order."""
        found, block, comment, note = [], None, None, ""
        for number, line in enumerate(self.text.splitlines(), 1):
            if comment is not None:
                comment.append(line)
            elif block is not None:
                fence, indent, lines = block[2], block[3], block[4]
                if line.strip() == fence:
                    text = "\n".join(each[indent:] for each in lines)
                    found.append((block[0], "block", Block(block[0], block[1], text, note)))
                    block, note = None, ""
                else:
                    lines.append(line)
                continue
            elif match := FENCE.match(line):
                block = (number, match[3].split(" ")[0], match[2], len(match[1]), [])
                continue
            elif line.lstrip().startswith("<!--"):
                comment = [line]
            else:
                found.append((number, "text", line))
                note = note if not line.strip() else ""
                continue
            if line.rstrip().endswith("-->"):
                note = "\n".join(comment).strip()[len("<!--") : -len("-->")].strip()
                found.append((number, "comment", note))
                comment = None
        if block is not None:
            raise ValueError(f"{self.name}:{block[0]}: a code block that does not end")
        return found

    @cached_property
    def blocks(self):
        return [content for _, kind, content in self.parts if kind == "block"]

    @cached_property
    def anchors(self):
        """What links can point at: headings, numbered where they repeat, as GitHub and mdBook name them."""
        found = []
        for _, kind, line in self.parts:
            if kind == "text" and (match := re.match(r"#{1,6} +(.*?)(?: +\{#([\w-]+)\})?\s*#*$", line)):
                found.append(match[2] or unique(slug(match[1]), found))
            elif kind == "text":
                found += re.findall(r"<a (?:id|name)=\"([^\"]+)\"", line)
        return found

    @cached_property
    def links(self):
        """(line number, target, whether it is an image, text) of every link outside of code."""
        found = []
        for number, text in paragraphs(self.parts):
            text = INLINE_CODE.sub(lambda code: "`" * len(code[0]), text)
            for match in LINK.finditer(text):
                found.append((number + text.count("\n", 0, match.start()), match[3], bool(match[1]), match[2]))
                # A picture may be the text of a link.
                found += [(number, inner[3], bool(inner[1]), inner[2]) for inner in LINK.finditer(match[2])]
            found += [(number, match[1], False, "-") for match in REFERENCE.finditer(text)]
            found += [(number, match[1], False, "-") for match in HTML.finditer(text)]
        return found


def paragraphs(parts):
    """Lines of text that belong together, with the number of the first: a link may span two lines."""
    start, lines = None, []
    for number, kind, content in [*parts, (0, "end", "")]:
        if kind == "text" and content.strip():
            start = start or number
            lines.append(content)
        elif lines:
            yield start, "\n".join(lines)
            start, lines = None, []


def slug(heading):
    """The anchor of a heading."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"[^\w\- ]", "", text.replace("`", "").lower())
    return text.replace(" ", "-")


def unique(name, taken):
    number, found = 0, name
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    return found


def pages():
    """Every Markdown file of the repository, also those not committed yet."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout.split("\n")
    return [Page.read(REPOSITORY / name) for name in sorted(set(names)) if name and (REPOSITORY / name).is_file()]
