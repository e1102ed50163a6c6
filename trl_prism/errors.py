"""The one error that bad input ends in, and what other libraries' errors are reduced to in its message."""


class PrismError(ValueError):
    """Something the user can mend. The message names the value, the bound and the way out."""


class WorkError(PrismError):
    """Work that was spread over ranks failed on one of them; there `__cause__` is the fault."""


def first_line(error: BaseException) -> str:
    """What an error says in its first line: libraries explain at length, and what went wrong comes first."""
    return str(error).strip().split("\n")[0]
