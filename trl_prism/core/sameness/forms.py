"""What a canonical form is made of, and when two of them are the same answer."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from trl_prism.core.sameness.spelling import ROW_END


@dataclass(frozen=True)
class Number:
    """An exact rational number; the unit and the variable that it is given to, where there is one."""

    value: Fraction
    unit: str = ""
    name: str = ""


@dataclass(frozen=True)
class Words:
    """Text that is no formula, or a choice such as A; `detail` is what the choice says."""

    text: str
    detail: str = ""
    name: str = ""


@dataclass(frozen=True)
class Several:
    """Several answers: `kind` is `set`, `union`, or the brackets of a tuple or interval such as `()` or `(]`.

    `name` is what they are given to, or the variable of an inequality.
    """

    kind: str
    items: tuple["Form", ...]
    name: str = ""


@dataclass(frozen=True)
class Formula:
    """Anything else: equal if it is written the same, otherwise a computer algebra system must say.

    `whole` is the equation that gave the formula its name, `words` are the words and angles in it, sorted.
    """

    text: str
    unit: str = ""
    name: str = ""
    whole: str = ""
    words: tuple[str, ...] = ()


Form = Number | Words | Several | Formula


def same(a: Form, b: Form, equal_formulas: Callable[[str, str], bool]) -> bool:
    """Whether two forms are the same answer.

    Args:
        a, b (`Form`): As from [`canonical`].
        equal_formulas (`Callable`): Decides for two formulas that are written differently, or a formula and a number.
    """
    if isinstance(a, Number) and isinstance(b, Number):
        return a.value == b.value and _compatible(a.unit, b.unit) and _compatible(a.name, b.name)
    if isinstance(a, Words) and isinstance(b, Words):
        return a.text == b.text and _compatible(a.detail, b.detail) and _compatible(a.name, b.name)
    if isinstance(a, Words) or isinstance(b, Words):
        return False
    if isinstance(a, Several) and isinstance(b, Several):
        a, b = _as_point(a, b), _as_point(b, a)
        if a.kind != b.kind or len(a.items) != len(b.items) or not _compatible(a.name, b.name):
            return False
        ordered = a.kind not in ("set", "union") or _is_key(a, b) or _is_key(b, a)
        if ordered:
            return all(same(x, y, equal_formulas) for x, y in zip(a.items, b.items, strict=True))
        return _matched(a.items, b.items, equal_formulas)
    if isinstance(a, Several) or isinstance(b, Several) or not _compatible(a.unit, b.unit):
        return False
    left, right = (form.text if isinstance(form, Formula) else _written(form.value) for form in (a, b))
    wholes = [form.whole or form.text for form in (a, b) if isinstance(form, Formula)]
    equations = [whole for whole in wholes if "=" in whole]
    if not _compatible(a.name, b.name):
        # x = y is y = x; but f(2) = c is not f(3) = c.
        if len(equations) < 2 or len(a.name) > 1 or len(b.name) > 1:
            return False
        left, right = equations
    elif len(equations) == 2 and "=" in left + right:
        left, right = equations
    if left == right:
        return True
    if _says_too_little(left, right):
        return False
    if {*getattr(a, "words", ())} != {*getattr(b, "words", ())}:  # Math-Verify takes words for products of letters
        return False
    return equal_formulas(left.replace(ROW_END, r"\\ "), right.replace(ROW_END, r"\\ "))


# What Math-Verify reads as something else, or not at all: number bases, ratios, dots, remainders.
_UNREADABLE = re.compile(r"\d_|:|\\[lc]?dots|\.\.\.|mod(?![a-z])")
_RELATION = re.compile(r"[=<>]|\\(?:le|ge|ne|neq|lt|gt|in|equiv|approx|sim|to|subset|subseteq)(?![a-z])")
_CAPITAL = re.compile(r"\\[A-Z][a-z]+")


def _says_too_little(left: str, right: str) -> bool:
    """Whether what Math-Verify would say of two different texts cannot be relied on, so that they count as different.

    Of an equation it takes the right-hand side where the other is none; it drops primes, and Greek capitals.
    """
    return (
        bool(_UNREADABLE.search(left) or _UNREADABLE.search(right))
        or bool(_RELATION.search(left)) != bool(_RELATION.search(right))
        or left.count("'") != right.count("'")
        or sorted(_CAPITAL.findall(left)) != sorted(_CAPITAL.findall(right))
    )


def _is_key(named: "Several", bare: "Several") -> bool:
    """Whether one side gives values to several variables and the other lists values: then the order counts.

    Not for x_1 and x_2, which are several solutions of one variable.
    """
    names = {item.name.partition("_")[0] for item in named.items}
    return len(names - {""}) > 1 and not any(item.name for item in bare.items)


def _as_point(key: "Several", other: "Several") -> "Several":
    """Values of single letters as the point whose coordinates they are, in the order of the alphabet."""
    names = [item.name for item in key.items]
    if key.kind == "set" and other.kind == "()" and 1 < len(set(names)) == len(key.items) and all(names):
        return Several("()", tuple(item for _, item in sorted(zip(names, key.items, strict=True), key=lambda n: n[0])))
    return key


def _matched(xs: Sequence[Form], ys: Sequence[Form], equal_formulas: Callable[[str, str], bool]) -> bool:
    """Whether every x has a y of its own. Greedy is enough: what is the same as x is interchangeable."""
    left = list(ys)
    for x in xs:
        found = next((i for i, y in enumerate(left) if same(x, y, equal_formulas)), None)
        if found is None:
            return False
        del left[found]
    return True


def _compatible(a: str, b: str) -> bool:
    return not a or not b or a == b


def _written(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"\\frac{{{value.numerator}}}{{{value.denominator}}}"
