"""Returns leased tokens when the interpreter exits."""

import atexit
import weakref
from typing import Any

_limiters: "weakref.WeakSet[Any]" = weakref.WeakSet()


def remember(limiter: Any) -> None:
    if not _limiters:
        atexit.register(_close)
    _limiters.add(limiter)


def _close() -> None:
    for limiter in list(_limiters):
        try:
            limiter.close()
        except Exception:
            # Leases expire in the store anyway.
            pass
