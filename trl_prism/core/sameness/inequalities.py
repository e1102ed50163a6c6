r"""Inequalities of one variable as the intervals that they mean: `1 \le x < 3` is `[1, 3)`."""

import re


_RELATION = re.compile(r"\s*(<|>|\\le(?![a-z])|\\ge(?![a-z])|\\lt(?![a-z])|\\gt(?![a-z]))\s*")
_VARIABLE = re.compile(r"[A-Za-z](?:_\{?\w+\}?)?|\\(?!infty|pi)[a-z]+")
_BUILDER = re.compile(
    r"(?:[A-Za-z]|\\[a-z]+)\s*(?:\\in\s*\\mathbb\s*\{?R\}?\s*)?(?:\\mid(?![a-z])|\\vert(?![a-z])|\||:)\s*(.*)"
)
_RISING = {"<": False, "\\lt": False, "\\le": True}
_FALLING = {">": False, "\\gt": False, "\\ge": True}
INFINITY = "\\infty"


def interval(text: str) -> tuple[str, str, str, str] | None:
    r"""The brackets, lower end, upper end and variable of an inequality; `None` where the text is none.

    Understood are one relation between a variable and a value, and a value on either side of a variable. Two
    variables, a chain that points both ways, or a relation with no variable have no interval.

    Example:

    ```python
    >>> interval(r"1 \le x < 3"), interval("x > 2"), interval("x < y")
    (('[)', '1', '3', 'x'), ('()', '2', '\\infty', 'x'), None)

    ```
    """
    parts = _RELATION.split(text.strip())
    if len(parts) not in (3, 5):
        return None
    sides, relations = parts[::2], parts[1::2]
    if all(relation in _FALLING for relation in relations):
        sides = sides[::-1]
        closed = [_FALLING[relation] for relation in reversed(relations)]
    elif all(relation in _RISING for relation in relations):
        closed = [_RISING[relation] for relation in relations]
    else:
        return None
    if not all(side and "=" not in side and "," not in side for side in sides):
        return None
    place = [i for i, side in enumerate(sides) if _VARIABLE.fullmatch(side)]
    if len(sides) == 3 and place == [1]:
        low, name, high = sides
        return "[("[not closed[0]] + "])"[not closed[1]], low, high, name
    if len(sides) == 2 and place == [0]:
        return "(" + "])"[not closed[0]], f"-{INFINITY}", sides[1], sides[0]
    if len(sides) == 2 and place == [1]:
        return "[("[not closed[0]] + ")", sides[0], INFINITY, sides[1]
    return None


def condition(inside: str) -> str | None:
    r"""The condition of a set-builder's inside, `x > 2` of `x \mid x > 2`; `None` where it is a list of elements."""
    match = _BUILDER.fullmatch(inside.strip())
    return match[1] if match else None
