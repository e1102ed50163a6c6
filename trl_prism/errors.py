"""The one error that bad input ends in, and what other libraries' errors are reduced to in its message."""

from collections.abc import Callable, Sequence


class PrismError(ValueError):
    """Something the user can mend. The message names the value, the bound and the way out."""


class WorkError(PrismError):
    """Work that was spread over ranks failed on one of them; there `__cause__` is the fault."""


class StopRequested(Exception):  # noqa: N818 - no error
    """The run was told to stop, and has saved what it needs to go on."""


def first_line(error: BaseException) -> str:
    """What an error says in its first line: libraries explain at length, and what went wrong comes first."""
    return str(error).strip().split("\n")[0]


def all_messages(*checks: Callable[[], object]) -> list[str]:
    """Runs every check and returns the messages of those that raise [`PrismError`], in order."""
    messages = []
    for check in checks:
        try:
            check()
        except PrismError as error:
            messages.append(str(error))
    return messages


def raise_all(messages: Sequence[str], *, what: str) -> None:
    """Raises one [`PrismError`] that lists all messages, if there are any; one alone stands for itself."""
    if len(messages) == 1:
        raise PrismError(messages[0])
    if messages:
        listed = "\n".join(f"  - {message}" for message in messages)
        raise PrismError(f"{len(messages)} {what}:\n{listed}")
