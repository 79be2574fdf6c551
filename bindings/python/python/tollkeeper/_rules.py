"""One-line limits as the rules of a limiter."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Union

from ._errors import ConfigError, UsageError
from ._tollkeeper import Limiter, Quota

#: ``"100/min burst 20"`` or a ``Quota``; several apply together, all or nothing.
LimitLike = Union[str, Quota, Iterable[Union[str, Quota]]]
#: ``"header.x-api-key|ip"``, ``"user"``, or a function of the request that returns a key.
By = Union[str, Callable[..., Any], None]

#: The attribute that holds what a key function returned.
KEY = "key"


def lines(limit: LimitLike) -> list[str | Quota]:
    if isinstance(limit, (str, Quota)):
        return [limit]
    if callable(limit):
        raise ConfigError(
            "limit: cannot be a function; write a rule for each limit, and pass limiter= and attributes=, a function that returns "
            "the attributes that the rules match"
        )
    given = list(limit) if isinstance(limit, Iterable) and not isinstance(limit, (bytes, Mapping)) else None
    # The name and the condition of a rule would be replaced.
    if given is None or any(isinstance(each, Mapping) for each in given):
        raise ConfigError(
            f'limit: must be a line such as "100/min burst 20", a Quota or a list of them, not {limit!r}; for rules, pass '
            "limiter=Limiter.from_rules([...])"
        )
    if not given:
        raise ConfigError('limit: the list is empty, so nobody would be limited; write for example "100/min burst 20"')
    return given


def require_one_source(
    limit: LimitLike | None, limiter: Limiter | None, by: By, attributes: Callable[..., Any] | None, has_settings: bool
) -> None:
    """Refuses what belongs to a limit beside a limiter, and the other way round."""
    if (limit is None) == (limiter is None):
        raise UsageError("give either limit=, such as \"100/min burst 20\", or limiter=")
    if limiter is None:
        if attributes is not None:
            raise UsageError("attributes: only for rules; pass limiter= instead of a limit, or use by= to set the key")
    elif not isinstance(limiter, Limiter):
        raise ConfigError(f"limiter: must be made by Limiter.from_rules or Limiter.from_file, not {limiter!r}")
    elif has_settings or by is not None and not callable(by):
        raise UsageError("limiter= has its own settings; pass them to Limiter.from_rules or Limiter.from_file")


#: What every HTTP request can have, beside headers, cookies, parameters of the query and what ``identify`` names.
_ATTRIBUTES = ("ip", "user", "method", "path", "host", KEY)
_PART = re.compile(r"header\.[!#$%&'*+.^_`~0-9A-Za-z-]+|(cookie|query)\..+")


def _require_known(key: str, identify: Iterable[str]) -> None:
    """Refuses a key by an attribute that no request has: nobody would be limited."""
    for name in (name for names in re.findall(r"{([^{}]*)}", key) for name in names.split("|")):
        if name not in _ATTRIBUTES and not _PART.fullmatch(name) and name not in identify:
            raise ConfigError(
                f"by: no request has {name!r}; use ip, user, header.NAME, cookie.NAME, query.NAME or global, name it in "
                "identify=, or give a function of the request"
            )


def rules_of(
    limit: LimitLike, by: By, name: str, when: dict[str, str] | None = None, identify: Iterable[str] | None = None
) -> list[dict[str, Any]]:
    """The rules for these limits, with names derived from this one."""
    if by is not None and not isinstance(by, str) and not callable(by):
        raise ConfigError(f'by: must be an attribute such as "header.x-api-key|ip", or a function, not {by!r}')
    if not isinstance(name, str) or not name:
        raise ConfigError(f'name: must be a text such as "login", not {name!r}')
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
        _require_known(spec["key"], identify or ())
        if when:
            spec["when"] = when
        specs.append(spec)
    return specs


def checked_cost(cost: Any) -> Any:
    """A cost as it was given, if it can be one."""
    if callable(cost) or isinstance(cost, int) and not isinstance(cost, bool) and 0 <= cost < 2**32:
        return cost
    raise ConfigError(f"cost: must be a whole number from 0 to 4294967295, or a function of the request, not {cost!r}")


def cost_of(cost: int | Callable[[Any], Any], request: Any) -> Any:
    """What a request costs, or an awaitable of it."""
    return cost if isinstance(cost, int) else cost(request)


def texts(fields: list[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    """Headers as texts, for hosts that do not take bytes."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in fields]
