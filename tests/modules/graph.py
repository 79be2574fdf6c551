"""Which module uses which, and where arrows run in a circle."""

from collections import namedtuple

# One module names something of another, in this line.
Edge = namedtuple("Edge", "user used line")


class Crate:
    """A tree of modules and the arrows between them."""

    def __init__(self, root):
        self.root = root
        self.edges = [edge for module in root.below() for edge in self.edges_of(module)]

    def edges_of(self, module):
        seen = set()
        for path, line in module.paths:
            used = self.find(module, path)
            if used and used is not module and used.name not in seen:
                seen.add(used.name)
                yield Edge(module, used, line)

    def find(self, module, path, tried=()):
        """The module that defines what a path names in this one. None if that is in another crate."""
        if (module.name, path) in tried:
            return None
        tried += ((module.name, path),)
        here, rest = module, path
        if path[0] == "crate":
            here, rest = self.root, path[1:]
        elif path[0] in ("self", "super"):
            while rest and rest[0] in ("self", "super"):
                here = self.module(here.name[:-1]) if rest[0] == "super" else here
                rest = rest[1:]
        elif path[0] not in module.children and path[0] not in module.imports:
            return None
        while rest:
            name, is_last = rest[0], len(rest) == 1
            target = here.imports.get(name)
            if target and (is_last or name not in here.children) and target != rest:
                if target[0] == name and name not in here.children:
                    return None  # `use http::http`: the first is a crate
                # A name that it got from elsewhere: what counts is where that is defined.
                return self.find(here, target + rest[1:], tried)
            if name in here.children:
                here, rest = here.children[name], rest[1:]
                continue
            for glob in here.globs:
                found = self.find(here, glob + rest, tried)
                if found and found.name != self.find(here, glob, tried).name:
                    return found
            break
        return here

    def module(self, name):
        here = self.root
        for part in name[1:]:
            here = here.children[part]
        return here

    def cycles(self):
        """A shortest cycle of each knot, as a list of edges. A module and its children are looked at together, where each
        child stands for all that is in it: so none of them may use what its parent defines while the parent uses it."""
        for parent in self.root.below():
            if parent.children:
                yield from knots(self.between(parent))

    def between(self, parent):
        """The arrows between a module and its children, each with one edge that is the reason for it."""
        depth = len(parent.name)
        arrows = {}
        for edge in self.edges:
            names = edge.user.name, edge.used.name
            if all(name[:depth] == parent.name for name in names):
                user, used = (name[: depth + 1] for name in names)
                if user != used:
                    arrows.setdefault(user, {}).setdefault(used, edge)
        return arrows


def knots(arrows):
    knotted = set()
    for start in sorted(arrows):
        way = shortest_way(arrows, start)
        if way and knotted.isdisjoint(edge_names(way)):
            knotted.update(reachable_both_ways(arrows, start))
            yield way


def edge_names(way):
    return {name for user, used, _ in way for name in (user, used)}


def shortest_way(arrows, start):
    """From here to here."""
    ways = [[(start, used, edge)] for used, edge in sorted(arrows[start].items())]
    seen = set()
    while ways:
        way = ways.pop(0)
        end = way[-1][1]
        if end == start:
            return way
        if end not in seen:
            seen.add(end)
            ways += [way + [(end, used, edge)] for used, edge in sorted(arrows.get(end, {}).items())]
    return None


def reachable_both_ways(arrows, start):
    forth = reachable(arrows, start)
    return {name for name in forth if start in reachable(arrows, name)}


def reachable(arrows, start):
    found, new = set(), [start]
    while new:
        for used in arrows.get(new.pop(), {}):
            if used not in found:
                found.add(used)
                new.append(used)
    return found
