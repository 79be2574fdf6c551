"""Exact rate limiting in your process.

- ``keyed("10/s burst 20").check(key)`` limits each key by one quota, in memory, without an event loop.
- ``Limiter`` decides by rules, from code or from a file, in memory or in Redis.
- ``tollkeeper.asgi``, ``tollkeeper.wsgi``, ``tollkeeper.fastapi``, ``tollkeeper.flask``, ``tollkeeper.django`` and
  ``tollkeeper.rest_framework`` are for the web.
"""

from ._errors import (
    AddressError,
    ConfigError,
    CostError,
    OverloadedError,
    RequestError,
    RuleError,
    StoreError,
    TollkeeperError,
    TollkeeperWarning,
    UsageError,
)
from ._tollkeeper import (
    Annotation,
    Decision,
    Keyed,
    KeyException,
    Limiter,
    ManualClock,
    Permit,
    Quota,
    Reservation,
    RuleDecision,
    Settlement,
    Verdict,
    __version__,
    keyed,
)

__all__ = [
    "AddressError",
    "Annotation",
    "ConfigError",
    "CostError",
    "Decision",
    "KeyException",
    "Keyed",
    "Limiter",
    "ManualClock",
    "OverloadedError",
    "Permit",
    "Quota",
    "RequestError",
    "Reservation",
    "RuleDecision",
    "RuleError",
    "Settlement",
    "StoreError",
    "TollkeeperError",
    "TollkeeperWarning",
    "UsageError",
    "Verdict",
    "__version__",
    "keyed",
]
