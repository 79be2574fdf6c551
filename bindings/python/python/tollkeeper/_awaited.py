"""What functions of the application return: values, or awaitables where there is an event loop."""

from __future__ import annotations

from inspect import isawaitable
from typing import Any

from ._errors import UsageError


async def awaited(value: Any) -> Any:
    """The value, awaited if it has to be."""
    return await value if isawaitable(value) else value


def at_once(value: Any, option: str) -> Any:
    """The value, where nobody can wait for it."""
    if not isawaitable(value):
        return value
    close = getattr(value, "close", None)
    if close is not None:
        # Nobody will await it, and that is what the error says.
        close()
    raise UsageError(f"{option}: an async function needs an async view or ASGI; give a function that is not async")
