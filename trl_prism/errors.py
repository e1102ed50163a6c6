"""The one error that bad input ends in."""


class PrismError(ValueError):
    """Something the user can mend. The message names the value, the bound and the way out."""


class WorkError(PrismError):
    """Work that was spread over ranks failed on one of them; there `__cause__` is the fault."""
