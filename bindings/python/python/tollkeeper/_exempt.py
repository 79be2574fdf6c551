"""What is not limited."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ._errors import ConfigError


class Paths:
    """Paths, and all that is below some of them."""

    __slots__ = ("_below", "_paths")

    def __init__(self, paths: list[str]) -> None:
        self._paths = frozenset(path for path in paths if not path.endswith("/*"))
        self._below = tuple(path[:-1] for path in paths if path.endswith("/*"))

    def has(self, path: str | None) -> bool:
        return path is not None and (path in self._paths or path.startswith(self._below))


def exemption(exempt: Any) -> Paths | Callable[[Any], Any] | None:
    """Paths, or a function of the request; None if nothing is exempt."""
    if callable(exempt):
        function: Callable[[Any], Any] = exempt
        return function
    # A text would be taken for a list of its letters, one of which is the path `/`.
    is_list = isinstance(exempt, Iterable) and not isinstance(exempt, (str, bytes))
    paths: list[Any] = list(exempt) if is_list else [None]
    if not all(isinstance(path, str) for path in paths):
        raise ConfigError(f'exempt: must be a list of paths such as ["/healthz"], or a function, not {exempt!r}')
    for path in paths:
        # Otherwise it would never match.
        if "*" in (path[:-1] if path.endswith("/*") else path):
            raise ConfigError(f"exempt: {path!r}: only a trailing /* is supported, as in '/static/*'; pass a function for other patterns")
        if not path.startswith("/"):
            raise ConfigError(f"exempt: {path!r}: a path starts with a slash, as in '/healthz'")
    return Paths(paths) if paths else None
