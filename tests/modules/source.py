"""Rust sources as far as a module graph needs them: which modules there are, and which paths each of them names.

What is built for tests only (`#[cfg(test)]`) is left out. A path is a tuple of names with the line that it is on; what it
means is found in `graph.py`.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

TOKEN = re.compile(
    r"""
      (?P<comment> //[^\n]* )
    | (?P<block>   /\* )
    | (?P<raw>     \b[bc]?r(?P<hashes>\#*)" )
    | (?P<string>  \b[bc]?"(?:[^"\\]|\\.)*" | "(?:[^"\\]|\\.)*" )
    | (?P<char>    b?'(?:[^'\\]|\\.[^']*)' )
    | (?P<life>    '\w+ )
    | (?P<name>    (?:r\#)?[A-Za-z_]\w* )
    | (?P<number>  \d\w* )
    | (?P<path>    :: )
    | (?P<other>   \S )
    """,
    re.VERBOSE | re.DOTALL,
)

# What an item may begin with. Anything else after an attribute is a field, an arm or a statement.
ITEM = {"pub", "fn", "struct", "enum", "union", "mod", "impl", "use", "const", "static", "type", "trait", "async", "unsafe", "extern"}


@dataclass
class Module:
    """One module: `crate`, or `crate::front::http`."""

    name: tuple
    file: Path
    # The folder in which the files of its children are.
    folder: Path
    children: dict = field(default_factory=dict)
    # What `use` brings into scope: a name, and the path that it stands for.
    imports: dict = field(default_factory=dict)
    # What `use path::*` brings into scope.
    globs: list = field(default_factory=list)
    # Every path that the module names, with its line.
    paths: list = field(default_factory=list)

    def __str__(self):
        return "::".join(self.name)

    def below(self):
        """This module and all modules in it."""
        yield self
        for child in self.children.values():
            yield from child.below()


def read_crate(root):
    """The tree of modules that begins with this file."""
    module = Module(("crate",), root, root.parent)
    parse(module, tokens(root.read_text()))
    return module


def tokens(text):
    """The tokens of a source with their lines; comments and literals are dropped."""
    found, at, line = [], 0, 1
    while match := TOKEN.search(text, at):
        line += text.count("\n", at, match.start())
        start, at, kind = match.start(), match.end(), match.lastgroup
        if match["block"]:
            at = end_of_comment(text, at)
        elif match["raw"]:
            at = text.index('"' + match["hashes"], at) + 1 + len(match["hashes"])
        elif kind in ("name", "path", "other", "number"):
            found.append((match[0].removeprefix("r#"), line))
        line += text.count("\n", start, at)
    return found


def end_of_comment(text, at):
    depth = 1
    while depth:
        mark = re.compile(r"/\*|\*/").search(text, at)
        depth += 1 if mark[0] == "/*" else -1
        at = mark.end()
    return at


def parse(module, tokens):
    """Fills a module with what its tokens say."""
    at = 0
    while at < len(tokens):
        word, line = tokens[at]
        if word == "#" and text_at(tokens, at + 1) == "[":
            end = closing(tokens, at + 1)
            attribute = "".join(word for word, _ in tokens[at + 2 : end])
            at = end + 1
            if re.match(r"path\b", attribute):
                raise SystemExit(f"{module.file}:{line}: #[path] is not understood here; name the file after the module")
            if re.match(r"cfg\((test|all\(test,)", attribute):
                at = end_of_item(tokens, at)
        elif word == "pub" and text_at(tokens, at + 1) == "(":
            # `pub(in crate::store)` says who may see it, which is not what it uses.
            at = closing(tokens, at + 1) + 1
        # `impl Future + use<>` says which lifetimes it captures.
        elif word == "use" and text_at(tokens, at + 1) != "<":
            end = next(end for end in range(at, len(tokens)) if tokens[end][0] == ";")
            read_use(module, (), tokens[at + 1 : end])
            at = end + 1
        elif word == "mod" and text_at(tokens, at + 2) == ";":
            add_child(module, tokens[at + 1][0])
            at += 3
        elif word == "mod" and text_at(tokens, at + 2) == "{":
            end = closing(tokens, at + 2)
            name = tokens[at + 1][0]
            child = Module(module.name + (name,), module.file, module.folder / name)
            module.children[name] = child
            parse(child, tokens[at + 3 : end])
            at = end + 1
        elif is_name(word) and text_at(tokens, at + 1) == "::" and text_at(tokens, at - 1) not in ("::", "."):
            names = [word]
            at += 1
            while text_at(tokens, at) == "::" and is_name(text_at(tokens, at + 1)):
                names.append(tokens[at + 1][0])
                at += 2
            module.paths.append((tuple(names), line))
        else:
            at += 1


def add_child(module, name):
    beside, inside = module.folder / f"{name}.rs", module.folder / name / "mod.rs"
    child = Module(module.name + (name,), inside if inside.exists() else beside, module.folder / name)
    module.children[name] = child
    parse(child, tokens(child.file.read_text()))


def read_use(module, prefix, tree):
    """`a::b`, `a::{b, c as d}`, `a::*`, `a::{self, b}`, and any of these in one another."""
    names = list(prefix)
    at = 0
    while at < len(tree):
        word, line = tree[at]
        if word == "{":
            for part in split_at_commas(tree[at + 1 : closing(tree, at)]):
                read_use(module, tuple(names), part)
            return
        if word == "*":
            module.globs.append(tuple(names))
            module.paths.append((tuple(names), line))
            return
        if is_name(word) and not (word == "self" and names):
            names.append(word)
        at += 1
        if text_at(tree, at) == "as":
            break
    if not names:
        return
    alias = tree[-1][0] if text_at(tree, len(tree) - 2) == "as" else names[-1]
    module.imports[alias] = tuple(names)
    module.paths.append((tuple(names), tree[0][1]))


def split_at_commas(tree):
    parts, depth = [[]], 0
    for word, line in tree:
        depth += (word == "{") - (word == "}")
        if word == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append((word, line))
    return [part for part in parts if part]


def end_of_item(tokens, at):
    """Where that which begins here is over."""
    while text_at(tokens, at) == "#":
        at = closing(tokens, at + 1) + 1
    words = [word for word, _ in tokens[at : at + 4]]
    is_item = bool(words) and words[0] in ITEM
    needs_semicolon = any(word in ("use", "const", "static", "type") for word in words) and "fn" not in words
    while at < len(tokens):
        word = tokens[at][0]
        if word in "([{":
            at = closing(tokens, at)
            if word == "{" and is_item and not needs_semicolon:
                return at + 1
        elif word == ";" or (word == "," and not is_item):
            return at + 1
        elif word in ")]}":
            return at
        at += 1
    return at


def closing(tokens, at):
    """The place of the bracket that closes the one here."""
    depth = 0
    for place in range(at, len(tokens)):
        word = tokens[place][0]
        depth += (word in "([{") - (word in ")]}")
        if depth == 0:
            return place
    raise ValueError("a bracket is never closed")


def text_at(tokens, at):
    return tokens[at][0] if 0 <= at < len(tokens) else ""


def is_name(word):
    return word[:1].isalpha() or word[:1] == "_"
