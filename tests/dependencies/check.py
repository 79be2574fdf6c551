"""Checks the licence and the source of every crate that a workspace builds, by the list in deny.toml.

cargo-deny checks the same and more (advisories, duplicates), but takes minutes to install; this takes a second.

    python3 tests/dependencies/check.py Cargo.toml bindings/Cargo.toml
"""

import json
import re
import subprocess
import sys


def allowed_licences(text: str) -> set[str]:
    block = re.search(r"^allow = \[(.*?)^\]", text, re.S | re.M)
    assert block, "deny.toml has no list of licences"
    return set(re.findall(r'"([^"]+)"', block.group(1)))


def is_allowed(expression: str, allowed: set[str]) -> bool:
    """Whether an SPDX expression can be met with these licences."""
    # Before SPDX expressions, `/` meant OR.
    words = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))

    def alternatives() -> bool:
        fine = conjunction()
        while words and words[0] == "OR":
            words.pop(0)
            # Both sides are read, whatever the first one says.
            fine = conjunction() or fine
        return fine

    def conjunction() -> bool:
        fine = term()
        while words and words[0] == "AND":
            words.pop(0)
            fine = term() and fine
        return fine

    def term() -> bool:
        word = words.pop(0)
        if word == "(":
            fine = alternatives()
            words.pop(0)
            return fine
        if words and words[0] == "WITH":
            word = " ".join([word, words.pop(0), words.pop(0)])
        return word in allowed

    return alternatives()


def problems(manifest: str, allowed: set[str]) -> list[str]:
    command = ["cargo", "metadata", "--format-version", "1", "--all-features", "--locked", "--manifest-path", manifest]
    packages = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["packages"]
    found = []
    for package in packages:
        name = f"{package['name']} {package['version']}"
        # Without a source it is ours.
        if not (package["source"] or "registry+").startswith("registry+"):
            found.append(f"{name}: its source is {package['source']}; only Cargo's registry is allowed")
        if not is_allowed(package["license"] or "none", allowed):
            found.append(f"{name}: its licence is {package['license']!r}; see [licenses] in deny.toml")
    return found


def main() -> None:
    with open("deny.toml", encoding="utf-8") as file:
        allowed = allowed_licences(file.read())
    found = [problem for manifest in sys.argv[1:] for problem in problems(manifest, allowed)]
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
