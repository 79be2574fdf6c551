"""One-line limits as the rules of a limiter."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Union

from ._tollkeeper import Limiter, Quota

#: ``"100/min burst 20"`` or a ``Quota``; several apply together, all or nothing.
LimitLike = Union[str, Quota, Iterable[Union[str, Quota]]]
#: ``"header.x-api-key|ip"``, ``"user"``, or a function of the request that returns a key.
By = Union[str, Callable[..., Any], None]

#: The attribute that holds what a key function returned.
KEY = "key"


def lines(limit: LimitLike) -> list[str | Quota]:
    return [limit] if isinstance(limit, (str, Quota)) else list(limit)


def rules_of(limit: LimitLike, by: By, name: str, when: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """The rules for these limits, with names derived from this one."""
    specs = []
    for index, line in enumerate(lines(limit)):
        # The library parses the line; only a name and a key are missing.
        (spec,) = Limiter.from_rules([line], max_keys=1).rules
        spec["name"] = name if index == 0 else f"{name}-{index + 1}"
        if callable(by):
            spec["key"] = "{" + KEY + "}"
        elif by == "global":
            spec["key"] = "global"
        elif by is not None:
            spec["key"] = "{" + by + "}"
        if when:
            spec["when"] = when
        specs.append(spec)
    return specs


def cost_of(cost: int | Callable[[Any], int], request: Any) -> int:
    """What a request costs."""
    return cost if isinstance(cost, int) else cost(request)


def texts(fields: list[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    """Headers as texts, for hosts that do not take bytes."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in fields]
