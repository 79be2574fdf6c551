"""Commands, from their help."""

import re

from parts.binary import tollkeeper


def commands():
    return "\n\n".join(command_text(path) for path in command_paths([]))


def command_paths(path):
    help_text = tollkeeper(*path, "--help", check=True).stdout
    listed = re.search(r"^Commands:\n(.*?)\n\n", help_text, re.S | re.M)
    names = re.findall(r"^  (\w[\w-]*) ", listed[1], re.M) if listed else []
    yield path
    for name in names:
        if name != "help":
            yield from command_paths([*path, name])


def command_text(path):
    text = tollkeeper(*path, "--help", check=True).stdout.strip()
    # An empty value of a variable is shown as `[env: NAME=]`.
    text = re.sub(r"\[env:(\s+)(\w+)=\]", r"[env:\1\2]", text)
    about, _, rest = text.partition("\n\n")
    name = " ".join(["tollkeeper", *path])
    return f"{'#' * (2 + max(0, len(path) - 1))} `{name}`\n\n{re.sub(chr(10), ' ', about).rstrip('.')}.\n\n```text\n{rest}\n```"
