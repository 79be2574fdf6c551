"""Gives back what was taken ahead of use when the interpreter ends."""

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
            # The store takes leases back by itself when their time is over.
            pass
