#!/usr/bin/env python3
"""No cycles between the modules of a crate.

    tests/modules/acyclic.py crates/core crates/server     # prints each cycle with file and line, exits 1 if there is one
    tests/modules/acyclic.py --layers crates/server        # the top-level modules, users above what they use

Modules read downward: front asks service, service asks metrics, never back. `cargo modules dependencies --acyclic` asks the
same of rust-analyzer; this reads `use` declarations and paths only, and takes a second.
"""

import os
import sys
from pathlib import Path

from graph import Crate, reachable
from source import read_crate


def main(arguments):
    folders = [Path(argument) for argument in arguments if not argument.startswith("--")]
    found = 0
    for folder in folders:
        roots = (folder / "src" / name for name in ("lib.rs", "main.rs"))
        crate = Crate(read_crate(next(root for root in roots if root.exists())))
        if "--layers" in arguments:
            print_layers(crate)
            continue
        for cycle in crate.cycles():
            found += 1
            print(f"{folder}: modules in a circle")
            for user, used, edge in cycle:
                place = f"{os.path.relpath(edge.user.file)}:{edge.line}"
                print(f"  {'::'.join(user[1:]) or 'crate'} -> {'::'.join(used[1:]) or 'crate'}   {place}   uses {edge.used}")
    if found:
        print("Move what both need into a module of its own, below both.")
    return 1 if found else 0


def print_layers(crate):
    """Each module one line below the lowest of those that use it."""
    arrows = crate.between(crate.root)
    arrows.pop(crate.root.name, None)
    names = [module.name for module in crate.root.children.values()]
    below = {name: reachable(arrows, name) for name in names}
    height = {}
    for name in sorted(names, key=lambda name: len(below[name])):
        height[name] = 1 + max((height[used] for used in below[name] if used in height), default=0)
    for layer in range(max(height.values()), 0, -1):
        print(f"{layer:3}  {' '.join(sorted(name[-1] for name in names if height[name] == layer))}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
