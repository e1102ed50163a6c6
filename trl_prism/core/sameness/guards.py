"""What is not worth handing to a computer algebra system: recognised by its text, in linear time."""

import re


MAX_FORMULA_CHARS = 600
MAX_NESTING = 30
MAX_DIGITS = 300

_DIGITS = re.compile(rf"\d{{{MAX_DIGITS + 1},}}")
_COSTLY = (
    ("unevaluated", re.compile(r"\\(?:sum|prod|i{0,3}nt|oint|lim|int)(?![a-zA-Z])")),
    (
        "factorial",
        re.compile(
            r"(?:\d{4,}|!|[)}])\s*!|\\[dt]?binom\s*(?:\{[^{}]*\}\s*)?\{[^{}]*(?:\^|\d{4,})"
            r"|(?:\^\s*\{?\s*\d+|\d{4,})\s*\}?\s*\\choose|\\choose[^{}]*(?:\^|\d{4,})"
        ),
    ),
    ("tower", re.compile(r"\d[\s)}\]]*\^\s*[({\[]?\s*[({\[]?\s*\d+[\s)}\]]*\^")),
    ("exponent", re.compile(r"\^\s*\{?\s*[-+(]?\s*\d{5,}|[)}\]]\s*\^\s*\{?\s*\d{3,}")),
)


def refused(formula: str) -> str | None:
    r"""Why a formula is not computed with: `length`, `nesting`, `digits`, `unevaluated`, ..., or `None`.

    Guarded are forms that keep sympy busy for minutes or gigabytes: towers of powers, huge exponents, factorials and
    binomials, high powers of sums. A sum, product, integral or limit that is still to be evaluated is guarded as well.
    What slips through meets the limits of [`~trl_prism.ports.verifier.Verifier`].

    Example:

    ```python
    >>> refused("9^{9^9}"), refused("99999999!"), refused(r"\frac{\pi}{2}")
    ('tower', 'factorial', None)

    ```
    """
    if len(formula) > MAX_FORMULA_CHARS:
        return "length"
    depth = 0
    for character in formula:
        depth += (character in "([{") - (character in ")]}")
        if depth > MAX_NESTING:
            return "nesting"
    if _DIGITS.search(formula):
        return "digits"
    return next((name for name, pattern in _COSTLY if pattern.search(formula)), None)
