"""A text as tokens, read one after the other: what the readers of exact and of numeric values share."""

import re


class Undecided(Exception):  # noqa: N818 - a result, not a fault
    """The text holds something that the reader does not understand with certainty."""


class TokenReader:
    """The tokens of a text, and a place in them.

    Args:
        text (`str`): The text.
        token (`re.Pattern`): One token, with leading spaces; the name of the group that matched is its kind.

    Raises:
        Undecided: where no token matches.
    """

    def __init__(self, text: str, token: re.Pattern[str]):
        self.tokens: list[tuple[str, str]] = []
        position, text = 0, text.strip()
        while position < len(text):
            match = token.match(text, position)
            if match is None:
                raise Undecided
            kind = match.lastgroup or ""
            self.tokens.append((kind, match[kind]))
            position = match.end()
        self.position = 0

    def at_end(self) -> bool:
        return self.position == len(self.tokens)

    @property
    def kind(self) -> str:
        """The kind of the next token, empty at the end."""
        return "" if self.at_end() else self.tokens[self.position][0]

    @property
    def next(self) -> str:
        """The next token, empty at the end."""
        return "" if self.at_end() else self.tokens[self.position][1]

    def take(self) -> str:
        """The next token, which is then behind us."""
        if self.at_end():
            raise Undecided
        self.position += 1
        return self.tokens[self.position - 1][1]

    def expect(self, mark: str) -> None:
        if self.take() != mark:
            raise Undecided
