"""What can go wrong. A denial is no error: it is an answer."""


class TollkeeperError(Exception):
    """Anything that this package raises."""


class RuleError(TollkeeperError, ValueError):
    """A rule, a quota or a limit that cannot be understood."""


class ConfigError(TollkeeperError, ValueError):
    """A file or a setting that cannot be understood."""


class CostError(TollkeeperError, ValueError):
    """An attribute that should carry a cost and holds no number."""


class RequestError(TollkeeperError, ValueError):
    """A request that cannot be read, or says who it is in two ways."""


class UsageError(TollkeeperError, RuntimeError):
    """A call that makes no sense, such as settling twice."""


class StoreError(TollkeeperError, RuntimeError):
    """A store that cannot be used."""


class OverloadedError(TollkeeperError, RuntimeError):
    """A request that was neither allowed nor denied, because too many were waiting for a decision. Try again in a second."""


class AddressError(TollkeeperError, RuntimeError):
    """A limit by address, and a request whose address the server does not tell."""
