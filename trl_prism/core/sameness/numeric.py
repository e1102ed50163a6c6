r"""Formulas that cannot be equal, told apart by their value at a point.

Most pairs that a vote compares differ, and a computer algebra system spends its longest time on those. Two formulas
that take different values for the same values of their variables are different; that takes microseconds. Nothing is
ever found equal here, and whatever is not understood with certainty is left undecided: equations, functions of unknown
meaning, roots and logarithms of what is not positive.
"""

import cmath
import math
import re
import zlib
from collections.abc import Callable
from functools import lru_cache

from trl_prism.core.sameness.tokens import TokenReader, Undecided


MAX_DEPTH = 40
TOLERANCE = 1e-5

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.?\d*|\.\d+)|(?P<command>\\[a-zA-Z]+)|(?P<letter>[a-zA-Z])|(?P<mark>[-+*/^_(){}\[\]]))"
)
_FUNCTIONS: dict[str, Callable[[complex], complex]] = {
    "\\sin": cmath.sin,
    "\\cos": cmath.cos,
    "\\tan": cmath.tan,
    "\\cot": lambda x: 1 / cmath.tan(x),
    "\\sec": lambda x: 1 / cmath.cos(x),
    "\\csc": lambda x: 1 / cmath.sin(x),
    "\\exp": cmath.exp,
}
_LETTERS = "alpha beta gamma delta epsilon zeta eta theta kappa lambda mu nu xi rho sigma tau phi chi psi omega hbar"
_OTHER_LETTERS = "varepsilon vartheta varphi Gamma Delta Theta Lambda Omega"
_GREEK = frozenset(f"\\{name}" for name in [*_LETTERS.split(), *_OTHER_LETTERS.split()])
_PRODUCT = frozenset(("*", "/", "\\times"))
_FACTOR = frozenset(("number", "letter", "command"))


def surely_different(a: str, b: str) -> bool:
    r"""Whether two formulas take different values somewhere. `False` says nothing.

    Example:

    ```python
    >>> surely_different(r"2\pi", r"3\pi"), surely_different("(x+1)^2", "x^2+2x+1"), surely_different("x=1", "x=2")
    (True, False, False)

    ```
    """
    for point in (0, 1):
        left, right = _value(a, point), _value(b, point)
        if left is None or right is None:
            return False
        (x, x_size), (y, y_size) = left, right
        # What cancels to nothing leaves a residue of rounding, in proportion to what was added up.
        if abs(x - y) > TOLERANCE * max(abs(x), abs(y)) + 1e-9 * max(x_size, y_size):
            return True
    return False


@lru_cache(maxsize=100_000)
def _value(formula: str, point: int) -> tuple[complex, float] | None:
    """The value with every variable at a place between 0.5 and 2.5, and the largest term of its sums; or `None`."""
    try:
        reader = _Reader(formula, point)
        value = reader.sum(0)
    except (Undecided, ZeroDivisionError, OverflowError, ValueError):
        return None
    return (value, reader.size) if reader.at_end() and cmath.isfinite(value) and abs(value) < 1e300 else None


class _Reader(TokenReader):
    """Recursive descent over `sum: product ((+|-) product)*`, where factors may stand side by side."""

    def __init__(self, text: str, point: int):
        super().__init__(text, _TOKEN)
        self.point = point
        self.size = 0.0

    def sum(self, depth: int) -> complex:
        if depth > MAX_DEPTH:
            raise Undecided
        value = self.product(depth)
        while self.next in ("+", "-"):
            sign = 1 if self.take() == "+" else -1
            term = self.product(depth)
            self.size = max(self.size, abs(value), abs(term))
            value += sign * term
        return value

    def product(self, depth: int) -> complex:
        value = self.signed(depth)
        while True:
            kind, token = self.kind, self.next
            if token in _PRODUCT:
                self.take()
                factor = self.signed(depth)
                value = value / factor if token == "/" else value * factor
            elif kind in ("letter", "command") or token == "(":
                value *= self.power(depth)
            else:  # a number after a factor would be a mistake of reading: 2 3 is neither 6 nor 23
                return value

    def signed(self, depth: int) -> complex:
        sign = 1
        while self.next in ("+", "-"):
            sign = -sign if self.take() == "-" else sign
        return sign * self.power(depth)

    def power(self, depth: int) -> complex:
        base = self.atom(depth + 1)
        if self.next != "^":
            return base
        self.take()
        exponent = self.argument(depth + 1)
        if self.next == "^":
            raise Undecided
        whole = exponent.imag == 0 and exponent.real == round(exponent.real)
        if not whole and not _positive(base):
            raise Undecided
        return base ** int(exponent.real) if whole and abs(exponent) < 1000 else base**exponent

    def argument(self, depth: int) -> complex:
        """What a command or an exponent applies to: a group, or one token."""
        if self.next == "{":
            self.take()
            value = self.sum(depth + 1)
            self.expect("}")
            return value
        kind, token = self.kind, self.next
        if kind == "number":
            if len(token) > 1:  # TeX takes one digit, people mean all
                raise Undecided
            self.take()
            return complex(float(token))
        if token == "-":
            self.take()
            return -self.argument(depth + 1)
        if kind == "letter" or token == "\\pi" or token in _GREEK:
            return self.atom(depth + 1)
        raise Undecided

    def atom(self, depth: int) -> complex:
        if depth > MAX_DEPTH:
            raise Undecided
        kind, token = self.kind, self.take()
        if kind == "number":
            return complex(float(token))
        if token in ("(", "{", "["):
            value = self.sum(depth + 1)
            self.expect({"(": ")", "{": "}", "[": "]"}[token])
            return value
        if kind == "letter" or token in _GREEK:
            return self.variable(token)
        if token == "\\pi":
            return complex(math.pi)
        if token == "\\frac":
            top = self.argument(depth)
            return top / self.argument(depth)
        if token == "\\sqrt":
            return self.root(depth)
        if token in ("\\ln", "\\log"):
            return self.logarithm(token, depth)
        if token in _FUNCTIONS:
            return self.function(token, depth)
        raise Undecided

    def variable(self, name: str) -> complex:
        if self.next == "_":
            self.take()
            name += "_"
            if self.next == "{":
                while self.next not in ("}", ""):
                    name += self.take()
                self.expect("}")
            else:
                name += self.take()
            name = name.replace("{", "")
        elif name == "e":
            return complex(math.e)
        elif name == "i":
            return 1j
        return complex(0.5 + zlib.crc32(f"{name} {self.point}".encode()) % 100_003 / 50_001.5)

    def root(self, depth: int) -> complex:
        degree = complex(2)
        if self.next == "[":
            self.take()
            degree = self.sum(depth + 1)
            self.expect("]")
        radicand = self.argument(depth)
        if not _positive(radicand):
            raise Undecided
        return radicand ** (1 / degree)

    def logarithm(self, name: str, depth: int) -> complex:
        base = complex(math.e)
        if self.next == "_":
            self.take()
            base = self.argument(depth)
        elif name == "\\log":  # of base 10 or e: who knows
            raise Undecided
        value = self.applied(depth)
        if not _positive(value) or not _positive(base):
            raise Undecided
        self.size = max(self.size, 1.0)
        return cmath.log(value) / cmath.log(base)

    def function(self, name: str, depth: int) -> complex:
        exponent = 1
        if self.next == "^":
            self.take()
            power = self.argument(depth)
            if power.imag or power.real not in (2.0, 3.0, 4.0):  # -1 would be the inverse function
                raise Undecided
            exponent = int(power.real)
        self.size = max(self.size, 1.0)  # the sine of pi is not quite 0
        return _FUNCTIONS[name](self.applied(depth)) ** exponent

    def applied(self, depth: int) -> complex:
        """A function's argument: brackets, or factors side by side up to the next sign or function."""
        kind, token = self.kind, self.next
        if token in ("(", "{", "["):
            value = self.atom(depth + 1)
            if self.next == "^":
                raise Undecided
            return value
        if kind not in _FACTOR:
            raise Undecided
        value = self.power(depth)
        while self.kind == "letter" or self.next == "\\pi":
            value *= self.power(depth)
        if self.next in ("(", "/"):  # sin x / 2: where the argument ends is a matter of taste
            raise Undecided
        return value


def _positive(value: complex) -> bool:
    return abs(value.imag) < 1e-12 * abs(value) and value.real > 1e-9
