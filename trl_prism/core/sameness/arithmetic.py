"""Exact arithmetic on short texts: what has a rational value gets it, within bounds, and nothing else does."""

import math
import re
from fractions import Fraction

from trl_prism.core.sameness.tokens import TokenReader, Undecided


MAX_DEPTH = 40
MAX_EXPONENT = 1_000
# A value of so many bits has fewer than the 4,300 digits that Python converts to text.
MAX_BITS = 14_000

_TOKEN = re.compile(
    r"\s*(?:(?P<repeating>\d*\.\d*\\overline\s*\{\s*\d+\s*\}|\d*\.\(\d+\))|(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)|(?P<command>\\(?:frac|times|sqrt))"
    r"|(?P<mark>[-+*/^(){}\[\]]))"
)
_REPEATING = re.compile(r"(\d*)\.(\d*)\D+(\d+)\D+")
_MIXED = re.compile(r"([+-]?)\s*(\d+)\s*(?:\s(\d+)\s*/\s*(\d+)|\\frac\s*(?:\{(\d+)\}|(\d))\s*(?:\{(\d+)\}|(\d)))")


def rational(text: str) -> Fraction | None:
    r"""The exact value of a text that holds nothing but numbers and arithmetic, else `None`.

    Example:

    ```python
    >>> rational(r"\frac{1}{2}"), rational("1 1/2"), rational("5.3e3"), rational(r"2\pi")
    (Fraction(1, 2), Fraction(3, 2), Fraction(5300, 1), None)

    ```
    """
    if match := _MIXED.fullmatch(text.strip()):
        sign, whole, *rest = match.groups()
        top, bottom = (int(group) for group in rest if group is not None)
        if 0 < top < bottom:
            value = int(whole) + Fraction(top, bottom)
            return -value if sign == "-" else value
        if "\\frac" not in text or bottom == 0:
            return None
    try:
        reader = _Reader(text)
        value = reader.sum(0)
        return value if reader.at_end() else None
    except (Undecided, ZeroDivisionError):
        return None


class _Reader(TokenReader):
    """Recursive descent over `sum: product ((+|-) product)*`, with bounds on depth and on the size of every value."""

    def __init__(self, text: str):
        super().__init__(text, _TOKEN)

    def sum(self, depth: int) -> Fraction:
        if depth > MAX_DEPTH:
            raise Undecided
        value = self.product(depth)
        while self.next in ("+", "-"):
            sign = self.take()
            value = _bounded(value + self.product(depth) * (1 if sign == "+" else -1))
        return value

    def product(self, depth: int) -> Fraction:
        value = self.signed(depth)
        while self.next in ("*", "/", "\\times", "(", "\\sqrt"):
            mark = self.next
            if mark in ("(", "\\sqrt"):  # 2(3), 3\sqrt{4}
                value = _bounded(value * self.power(depth))
                continue
            self.take()
            factor = self.signed(depth)
            value = _bounded(value / factor if mark == "/" else value * factor)
        return value

    def signed(self, depth: int) -> Fraction:
        sign = 1
        while self.next in ("+", "-"):
            sign = -sign if self.take() == "-" else sign
        return sign * self.power(depth)

    def power(self, depth: int) -> Fraction:
        base = self.atom(depth + 1)
        if self.next != "^":
            return base
        self.take()
        exponent = self.group(depth + 1) if self.next == "{" else self.signed_digit()
        if exponent.denominator != 1 or abs(exponent) > MAX_EXPONENT or self.next == "^":
            raise Undecided
        size = max(base.numerator.bit_length(), base.denominator.bit_length())
        if size * abs(int(exponent)) > MAX_BITS:
            raise Undecided
        return base ** int(exponent)

    def signed_digit(self) -> Fraction:
        """TeX's exponent without braces: one digit. `2^10` is how people write 2^{10}, so all digits are taken."""
        sign = -1 if self.next == "-" and self.take() else 1
        token = self.take()
        if not token.isdigit():
            raise Undecided
        return Fraction(sign * int(token))

    def group(self, depth: int) -> Fraction:
        self.expect("{")
        value = self.sum(depth + 1)
        self.expect("}")
        return value

    def argument(self, depth: int) -> Fraction:
        """A command's argument: a group, or as in TeX one digit."""
        if self.next == "{":
            return self.group(depth)
        kind, token = self.kind, self.next
        if kind != "number" or not token.isdigit():
            raise Undecided
        if len(token) == 1:
            self.position += 1
        else:
            self.tokens[self.position] = (kind, token[1:])
        return Fraction(int(token[0]))

    def atom(self, depth: int) -> Fraction:
        if depth > MAX_DEPTH:
            raise Undecided
        kind, token = self.kind, self.next
        if kind == "number":
            self.position += 1
            return _number(token)
        if kind == "repeating":
            self.position += 1
            return _repeating(token)
        if token == "\\frac":
            self.position += 1
            top = self.argument(depth)
            return _bounded(top / self.argument(depth))
        if token == "\\sqrt":
            self.position += 1
            return _root(self.argument(depth))
        if token in ("(", "{", "["):
            self.position += 1
            value = self.sum(depth + 1)
            self.expect({"(": ")", "{": "}", "[": "]"}[token])
            return value
        raise Undecided


def _number(token: str) -> Fraction:
    mantissa, _, exponent = token.lower().partition("e")
    if exponent and abs(int(exponent)) > MAX_EXPONENT:
        raise Undecided
    return Fraction(mantissa) * Fraction(10) ** int(exponent or 0)


def _repeating(token: str) -> Fraction:
    r"""`0.1\overline{6}` and `0.(6)` exactly."""
    match = _REPEATING.fullmatch(token)
    if match is None or len(token) > MAX_EXPONENT:
        raise Undecided
    whole, fixed, period = match.groups()
    return Fraction(f"{whole or 0}.{fixed or 0}") + Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(fixed))


def _root(value: Fraction) -> Fraction:
    if value < 0:
        raise Undecided
    top, bottom = math.isqrt(value.numerator), math.isqrt(value.denominator)
    if top * top != value.numerator or bottom * bottom != value.denominator:
        raise Undecided
    return Fraction(top, bottom)


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise Undecided
    return value
