"""Exceptions. A denial is not an error: it is an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._tollkeeper import Verdict


class TollkeeperError(Exception):
    """Anything that this package raises."""


class RuleError(TollkeeperError, ValueError):
    """An invalid rule, quota or limit."""


class ConfigError(TollkeeperError, ValueError):
    """An invalid file or setting."""


class CostError(TollkeeperError, ValueError):
    """An attribute that should hold a cost is not a number."""


class RequestError(TollkeeperError, ValueError):
    """A request that cannot be read, or that identifies its client in two ways."""


class UsageError(TollkeeperError, RuntimeError):
    """An invalid call, such as settling twice."""


class StoreError(TollkeeperError, RuntimeError):
    """A store that cannot be used."""


class OverloadedError(TollkeeperError, RuntimeError):
    """A request that was neither allowed nor denied, because too many were waiting for a decision. Try again in a second."""

    #: After ``check_many``: the verdicts that were made, in the order of the requests; None where there is none.
    verdicts: list[Verdict | None] = []


class AddressError(TollkeeperError, RuntimeError):
    """A limit by address, but the server provides no address for the request."""


class TollkeeperWarning(UserWarning):
    """A setting that is valid but probably a mistake."""
