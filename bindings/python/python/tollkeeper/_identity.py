"""The user of a request, from the framework rather than from headers, and what else the application says about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Optional

from ._errors import UsageError

_NAMES = ("id", "pk", "user_id", "identity", "username", "display_name", "sub")


def name_of(user: Any) -> str | None:
    """The name of a user, in whatever form a framework has it; None if there is no user."""
    if user is None:
        return None
    if isinstance(user, (str, int, bytes)):
        return user.decode("utf-8", "replace") if isinstance(user, bytes) else str(user)
    is_authenticated = getattr(user, "is_authenticated", True)
    if callable(is_authenticated):
        is_authenticated = is_authenticated()
    if not is_authenticated:
        return None
    for name in _NAMES:
        try:
            value = user[name] if isinstance(user, dict) else getattr(user, name, None)
        except (KeyError, NotImplementedError):
            continue
        if value is not None:
            return str(value)
    raise UsageError(
        f"cannot identify the user: {type(user).__name__} has none of {', '.join(_NAMES)}. "
        "Give by= a function that returns a string"
    )


def key_of(value: Any) -> str | None:
    """What a key function returned, as a key. None means that the limit does not apply."""
    return name_of(value)


def attributes_of(value: Any) -> dict[str, Any]:
    """What a function of the application returned as the attributes of a request."""
    if not isinstance(value, Mapping):
        raise UsageError(f'attributes: must return a mapping such as {{"plan": "pro"}}, not {value!r}')
    return dict(value)


#: A function of the scope or environment that returns the client's address.
AddressOf = Optional[Callable[[Any], Optional[str]]]


def addressed_scope(scope: Any, address: AddressOf) -> Any:
    """The scope to decide on: the server's, or one with the address that a function of the application returned."""
    found = None if address is None else address(scope)
    return scope if found is None else {**scope, "client": (found, 0)}


def addressed_environ(environ: Any, address: AddressOf) -> Any:
    """The same for WSGI."""
    found = None if address is None else address(environ)
    return environ if found is None else {**environ, "REMOTE_ADDR": found}
