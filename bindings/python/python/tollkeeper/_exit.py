"""Returns leased tokens when the interpreter exits. Imported with the first limiter that may have some."""

import atexit
import weakref
from typing import Any

_limiters: "weakref.WeakSet[Any]" = weakref.WeakSet()


def remember(limiter: Any) -> None:
    _limiters.add(limiter)


@atexit.register
def _close() -> None:
    for limiter in list(_limiters):
        try:
            limiter.close()
        except Exception:
            # Leases expire in the store anyway.
            pass
