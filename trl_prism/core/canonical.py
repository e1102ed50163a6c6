r"""A canonical form for answers that can be compared without a computer algebra system.

| answers | the same? | why |
|---|---|---|
| `0.5`, `\frac{1}{2}`, `\dfrac12`, `1/2`, `½` | yes | exact rational arithmetic |
| `1,234`, `1{,}234`, `1234` | yes | thousands separators: groups of three digits, no space |
| `1, 234` and `1,234` | no | with a space it is a list of two numbers |
| `1 1/2`, `1\frac{1}{2}`, `1½`, `1.5` | yes | mixed numbers |
| `5.3e3`, `5.3 \times 10^{3}`, `5300` | yes | scientific notation |
| `2^{10}`, `1024`; `\sqrt{16}`, `4` | yes | integer powers and exact square roots within bounds |
| `50\%`, `50` | yes | the percent sign is a unit |
| `50\%`, `0.5` | no | one reading only, else 50 and 0.5 would be equal |
| `5\text{ cm}`, `5 cm`, `5` | yes | a unit may be left out |
| `5 cm`, `5 m` | no | but two units must agree |
| `90^\circ`, `90 degrees`, `90` | yes | degrees are a unit |
| `\$18.90`, `18.9` | yes | so is a currency |
| `101_2` and `101` | no | a number base is never dropped |
| `101_2`, `5` | yes | it is the same number |
| `(A)`, `A`, `\text{(A)}`, `A.` | yes | choices |
| `\text{even}`, `Even` | yes | words, case aside |
| `listen`, `silent` | no | words are no products of letters |
| `x = 5`, `5` | yes | one variable that is given a value |
| `1,-2`, `-2, 1`, `\{-2,1\}`, `1 \text{ and } -2` | yes | a bare list is a set of solutions |
| `1` and `1, 2`; `1, 2` and `1, 2, 3` | no | all of a set must be there |
| `(1,2)`, `(1,2,3)` | no | and all of a tuple |
| `(1,2)`, `(2,1)` | no | tuples are ordered |
| `(1,2)`, `[1,2]`, `(1,2]` | no | brackets tell intervals apart |
| `１２`, `12`; `（1，2）`, `(1,2)` | yes | full-width digits and punctuation |
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from trl_prism.core.arithmetic import MAX_DEPTH, rational
from trl_prism.core.spelling import ROW_END, closes, normalise, packed
from trl_prism.core.units import FUNCTIONS, KNOWN_UNITS, without_unit


MAX_CHARS = 2_000

# What a canonical form is made of.


@dataclass(frozen=True)
class Number:
    """An exact rational number; the unit and the variable that it is given to, where there is one."""

    value: Fraction
    unit: str = ""
    name: str = ""


@dataclass(frozen=True)
class Words:
    """Text that is no formula, or a choice such as A."""

    text: str


@dataclass(frozen=True)
class Several:
    """Several answers: `kind` is `set`, or the brackets of a tuple or interval such as `()` or `(]`."""

    kind: str
    items: tuple["Form", ...]


@dataclass(frozen=True)
class Formula:
    """Anything else: equal if it is written the same, otherwise a computer algebra system must say.

    `whole` is the equation that gave the formula its name.
    """

    text: str
    unit: str = ""
    name: str = ""
    whole: str = ""


Form = Number | Words | Several | Formula


def same(a: Form, b: Form, equal_formulas: Callable[[str, str], bool]) -> bool:
    """Whether two forms are the same answer.

    Args:
        a, b (`Form`): As from [`canonical`].
        equal_formulas (`Callable`): Decides for two formulas that are written differently, or a formula and a number.
    """
    if isinstance(a, Number) and isinstance(b, Number):
        return a.value == b.value and _compatible(a.unit, b.unit) and _compatible(a.name, b.name)
    if isinstance(a, Words) or isinstance(b, Words):
        return a == b
    if isinstance(a, Several) and isinstance(b, Several):
        if a.kind != b.kind or len(a.items) != len(b.items):
            return False
        ordered = a.kind != "set" or _is_key(a, b) or _is_key(b, a)
        if ordered:
            return all(same(x, y, equal_formulas) for x, y in zip(a.items, b.items, strict=True))
        return _matched(a.items, b.items, equal_formulas)
    if isinstance(a, Several) or isinstance(b, Several) or not _compatible(a.unit, b.unit):
        return False
    left, right = (form.text if isinstance(form, Formula) else _written(form.value) for form in (a, b))
    wholes = [
        form.whole or form.text for form in (a, b) if isinstance(form, Formula) and "=" in form.whole + form.text
    ]
    if not _compatible(a.name, b.name) or (len(wholes) == 2 and "=" in left + right):
        if len(wholes) < 2:
            return False
        left, right = wholes
    # Math-Verify drops primes, which tell a function from its derivative.
    if left == right or left.count("'") != right.count("'"):
        return left == right
    return equal_formulas(left.replace(ROW_END, r"\\ "), right.replace(ROW_END, r"\\ "))


def _is_key(named: "Several", bare: "Several") -> bool:
    """Whether one side gives values to several variables and the other lists values: then the order counts."""
    names = {item.name for item in named.items if isinstance(item, Number | Formula)}
    return len(names - {""}) > 1 and not any(item.name for item in bare.items if isinstance(item, Number | Formula))


def _matched(xs: Sequence[Form], ys: Sequence[Form], equal_formulas: Callable[[str, str], bool]) -> bool:
    """Whether every x has a y of its own. Greedy is enough: what is the same as x is interchangeable."""
    left = list(ys)
    for x in xs:
        found = next((i for i, y in enumerate(left) if same(x, y, equal_formulas)), None)
        if found is None:
            return False
        del left[found]
    return True


def _differ(a: str, b: str) -> bool:
    return False


def _compatible(a: str, b: str) -> bool:
    return not a or not b or a == b


def _written(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"\\frac{{{value.numerator}}}{{{value.denominator}}}"


def canonical(answer: str) -> Form:
    """The canonical form of an answer. Never raises; linear in its length up to `MAX_CHARS`, beyond that only text."""
    if len(answer) > MAX_CHARS:
        return Formula("".join(answer.split()))
    text = normalise(answer)
    form = _form(text, depth=0)
    return form.items[0] if isinstance(form, Several) and form.kind == "set" and len(form.items) == 1 else form


# Then structure: sets, tuples, lists, and what a single answer is.

_ASSIGNED = re.compile(
    r"([A-Za-z](?:_\{?\w+\}?)?|\\[a-z]+)\s*(?:\(\s*[a-z]\s*\))?\s*(?:=|\\in(?![a-z]))\s*(?=\S)([^=]*)"
)
_TUPLE_ASSIGNED = re.compile(r"\(\s*[a-zA-Z](?:\s*,\s*[a-zA-Z])+\s*\)\s*=\s*(\(.*\))")
_THOUSANDS = re.compile(r"(?<![\d,.])\d{1,3}(?:,\d{3})+(?![\d,])")
_AND = re.compile(r"\s*(?:⟦\s*(?:and|or|,)\s*⟧|\band\b|\bor\b)\s*")
_CHOICE = re.compile(r"\(?\s*([A-Z])\s*\)?[.):]?")
# Ratios, times and dates are not arithmetic.
_CLOCK = re.compile(
    r"\d+(?:\.\d+)?(?:\s*:\s*\d+(?:\.\d+)?)+(?:\s*⟦?[ap]\.?m\.?⟧?)?|\d{4}-\d{1,2}-\d{1,2}", re.IGNORECASE
)
_REVERSED = re.compile(r"([^=<>]*[^=<>\s\\])\s*=\s*([A-Za-z])")
_SENTENCE = re.compile(r"[^\W\d_]{3,}")
_OPERATOR = re.compile(r"[-+*/^=<>()|]")
_WORD = re.compile(r"[^\W\d_]{2,}(?:[\s'-]+[^\W\d_]+)*")
_BASE = re.compile(r"(\d[0-9A-F]*)_\{?(?:⟦)?(\d{1,2}|[a-z]+)(?:⟧)?\}?")
_BASE_NAMES = {
    name: base
    for base, name in enumerate(
        [
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
            "thirteen",
            "fourteen",
            "fifteen",
            "sixteen",
        ],
        start=2,
    )
}


def _form(text: str, *, depth: int) -> Form:
    text = text.strip()
    if depth > MAX_DEPTH:
        return Formula(packed(text))
    if match := _TUPLE_ASSIGNED.fullmatch(text):
        return _form(match[1], depth=depth + 1)
    if text.startswith("\\{") and text.endswith("\\}") and closes(text[1:-2] + "}") == len(text) - 3:
        return _several("set", split_list(text[2:-2]), depth=depth)
    if text[:1] in ("(", "[") and text[-1:] in (")", "]") and closes(text) == len(text) - 1:
        items = split_list(text[1:-1])
        if len(items) > 1:
            return _several(text[0] + text[-1], items, depth=depth)
    bare = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), text) if depth == 0 else text
    items = [part for item in split_list(bare) for part in _AND.split(item) if part]
    if len(items) > 1:
        return _several("set", items, depth=depth)
    return _single(bare, depth=depth)


def _several(kind: str, items: Sequence[str], *, depth: int) -> Several:
    forms: list[Form] = []
    for item in items:
        for one in _both_signs(item) if kind == "set" else [item]:
            form = _form(one, depth=depth + 1)
            # In a set, what is written twice is there once.
            if kind != "set" or not any(same(form, other, _differ) for other in forms):
                forms.append(form)
    return Several(kind, tuple(forms))


def _both_signs(item: str) -> list[str]:
    return [item.replace("\\pm", sign) for sign in "+-"] if item.count("\\pm") == 1 else [item]


def _single(text: str, *, depth: int) -> Form:
    if "\\pm" in text and len(_both_signs(text)) == 2:
        return _several("set", [text], depth=depth)
    if _CLOCK.fullmatch(text):
        return Words("".join(text.split()))
    if match := _REVERSED.fullmatch(text):  # 5 = x
        text = f"{match[2]} = {match[1]}"
    if match := _ASSIGNED.fullmatch(text):
        inner = _form(match[2], depth=depth + 1)
        if isinstance(inner, Number) and not inner.name:
            return replace(inner, name=match[1])
        if isinstance(inner, Formula) and not inner.name:
            return replace(inner, name=match[1], whole=packed(text))
        return inner
    if match := _CHOICE.fullmatch(text.replace("⟦", "").replace("⟧", "")):
        return Words(match[1])
    words = " ".join(text.replace("⟦", " ").replace("⟧", " ").split())
    if ("⟦" in text or "\\" not in text) and _WORD.fullmatch(words) and words.casefold() not in FUNCTIONS:
        return Words(words.casefold())
    if match := _BASE.fullmatch(text.replace(" ", "")):
        whole = _in_base(match[1], match[2])
        if whole is not None:
            return Number(Fraction(whole))
    value_text, unit, scale = without_unit(text)
    value = rational(value_text)
    if value is not None:
        return Number(value * scale, unit)
    if "\\" not in text and _SENTENCE.search(text) and not _OPERATOR.search(text):
        return Words(" ".join(text.replace("⟦", " ").replace("⟧", " ").casefold().split()))
    if scale == 1 and value_text != text and (not unit or unit in KNOWN_UNITS):
        return Formula(packed(value_text), unit=unit)
    return Formula(packed(text))


def _in_base(digits: str, base_text: str) -> int | None:
    base = _BASE_NAMES.get(base_text) or (int(base_text) if base_text.isdigit() else 0)
    if not 2 <= base <= 36:
        return None
    try:
        return int(digits, base)
    except ValueError:
        return None


def split_list(text: str) -> list[str]:
    """Parts between commas and semicolons that stand in no brackets."""
    parts, depth, start = [], 0, 0
    for i, character in enumerate(text):
        if character in "([{⟦":
            depth += 1
        elif character in ")]}⟧":
            depth -= 1
        elif character in ",;" and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    parts.append(text[start:].strip())
    return [part for part in parts if part] or [""]
