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
| `3 xy`, `3`; `5\text{k}`, `5`; `3 tenths`, `3` | no | products, abbreviations and parts are no units |
| `3 hundred thousand`, `300000`; `5万`, `50000` | yes | words that are factors |
| `90^\circ`, `90 degrees`, `90` | yes | degrees are a unit |
| `\$18.90`, `18.9` | yes | so is a currency |
| `101_2` and `101`; `21_n`, `21` | no | a number base is never dropped |
| `101_2`, `5`; `21 base five`, `11` | yes | it is the same number |
| `(A)`, `A`, `\text{(A)}`, `A.` | yes | choices |
| `\text{even}`, `Even` | yes | words, case aside |
| `listen`, `silent` | no | words are no products of letters |
| `x = 5`, `5`; `AB = 5`, `5`; `f(2) = 5`, `5` | yes | a variable or quantity that is given a value |
| `x = 5`, `y = 5`; `f(2) = 5`, `f(3) = 5` | no | but two names must agree |
| `x^2 = 4`, `4`; `2x = 10`, `10` | no | an equation is no value |
| `1,-2`, `-2, 1`, `\{-2,1\}`, `1 \text{ and } -2` | yes | a bare list is a set of solutions |
| `1` and `1, 2`; `1, 2` and `1, 2, 3` | no | all of a set must be there |
| `(1,2)`, `(1,2,3)` | no | and all of a tuple |
| `(1,2)`, `(2,1)` | no | tuples are ordered |
| `(1,2)`, `[1,2]`, `(1,2]` | no | brackets tell intervals apart |
| `1 \le x < 3`, `[1,3)`; `x > 2`, `(2,\infty)`, `\{x \mid x > 2\}` | yes | an inequality is an interval |
| `x < 1 \text{ or } x > 2`, `(-\infty,1) \cup (2,\infty)` | yes | and several joined by "or" are a union |
| `x = 1, y = 2`, `(1,2)` | yes | letters that are given values are a point, in the order of the alphabet |
| `(\pm 3, 0)`, `(3,0), (-3,0)` | yes | one sign for both |
| `\emptyset`, `\varnothing`, `\{\}` | yes | no solutions |
| `{1,2}`, `\{1,2\}` | yes | TeX would show the braces of the first as nothing |
| `0.1\overline{6}`, `1/6`; `0.(3)`, `1/3` | yes | repeating decimals are exact |
| `(A) 5`, `A`, `\text{option A}` | yes | what a choice says may be left out, |
| `(A) 5`, `(A) 6` | no | but two must agree |
| `A`, `A or B`; `AC` and `A, C` | no | A or B chooses nothing; AC may be a segment |
| `sqrt(12)`, `\sqrt{12}`; `2pi`, `2\pi`; `x^(1/2)`, `x^{1/2}` | yes | plain text is read as TeX |
| `\approx 5`, `x \approx 5`, `5` | yes | the value is what is compared |
| `5 m` and `5` | no | a lone letter is a variable; `5\text{ m}` has a unit |
| `5元`, `5\text{ yuan}`; `10人`, `10` | yes | Chinese units and counters |
| `１２`, `12`; `（1，2）`, `(1,2)` | yes | full-width digits and punctuation |
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from trl_prism.core.sameness.arithmetic import MAX_DEPTH, rational
from trl_prism.core.sameness.forms import Form, Formula, Number, Several, Words, same
from trl_prism.core.sameness.inequalities import INFINITY, condition, interval
from trl_prism.core.sameness.spelling import closes, normalise, packed
from trl_prism.core.sameness.units import FUNCTIONS, KNOWN_UNITS, without_unit


MAX_CHARS = 2_000


def canonical(answer: str) -> Form:
    """The canonical form of an answer. Never raises; linear in its length up to `MAX_CHARS`, beyond that only text."""
    if len(answer) > MAX_CHARS:
        return Formula("".join(answer.split()))
    text = normalise(answer)
    form = _form(text, depth=0)
    if isinstance(form, Several) and form.kind == "set" and len(form.items) == 1:
        [only] = form.items
        # A set of sets is not the set in it.
        return form if isinstance(only, Several) and only.kind == "set" else only
    return form


# Then structure: sets, tuples, lists, and what a single answer is.

# What a value may be given to: a variable, a function of one, a quantity such as AB, f(2), P(A) or \\angle ABC.
_NAME = (
    r"[A-Za-z](?:_\{?\w+\}?)?|\\[a-z]+|m?\s*\\angle\s*[A-Z]{1,3}|[A-Z]{2,4}|\|[A-Z]{1,3}\||\\overline\s*\{[A-Z]{2}\}"
    r"|⟦[^⟦⟧=]*⟧|[A-Za-z]{4,}(?:\s+[A-Za-z]+)*"
)
_ASSIGNED = re.compile(rf"({_NAME})\s*(\([^()=]*\))?\s*(?:=|\\in(?![a-z])|\\approx(?![a-z]))\s*(?=\S)([^=]*)")
_VARIABLE_ARGUMENT = re.compile(r"\(\s*[a-z]\s*\)")
_TUPLE_ASSIGNED = re.compile(r"\(\s*([a-zA-Z](?:\s*,\s*[a-zA-Z])+)\s*\)\s*=\s*\((.*)\)")
_THOUSANDS = re.compile(r"(?<![\d,.])[1-9]\d{0,2}(?:,\d{3})+(?!\d|,\d)")
_AND = re.compile(r"\s*(?:⟦\s*(?:and|or|,)\s*⟧|\band\b|\bor\b)\s*")
_OR = re.compile(r"\s*(?:⟦\s*or\s*⟧|\bor\b)\s*")
_CHOICE = re.compile(r"(?:(?i:option|choice|answer)\s*)?\(?\s*([A-Z])\s*\)?[.):]?")
_CHOICE_WITH_TEXT = re.compile(r"(?:\(\s*([A-Z])\s*\)|([A-Z])\s*[.:)])\s+(?=[-\w\\.$(])(.*)")
_UNION = re.compile(r"\\cup(?![a-z])")
_APPROXIMATE = re.compile(r"(?:=|\\approx(?![a-z])|⟦\s*(?i:approximately|about|roughly)\s*⟧)\s*")
# Ratios, times and dates are not arithmetic.
_CLOCK = re.compile(
    r"\d+(?:\.\d+)?(?:\s*:\s*\d+(?:\.\d+)?)+(?:\s*⟦?[ap]\.?m\.?⟧?)?|\d{4}-\d{1,2}-\d{1,2}", re.IGNORECASE
)
_REVERSED = re.compile(r"([^=<>]*[^=<>\s\\])\s*=\s*([A-Za-z])")
_SENTENCE = re.compile(r"[^\W\d_]{3,}")
_OPERATOR = re.compile(r"[-+*/^=<>()|]")
_WORD = re.compile(r"[^\W\d_]{2,}(?:[\s'-]+[^\W\d_]+)*")
_BASE = re.compile(
    r"(-?)(?:\((?=\w+\)))?([0-9A-F]*\d[0-9A-F]*)\)?(?:_|⟦?base⟧?)\{?[(⟦]?(?:base)?(\d{1,2}|[a-z]+)[)⟧]?\}?"
)
_ORDINAL = re.compile(r"(\d+)\s*\^?\s*\{?\s*⟦?\s*(?:st|nd|rd|th)\s*⟧?\s*\}?")
_TRIGONOMETRIC = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-z])")
_DEGREES = re.compile(r"(\d+(?:\.\d+)?)\s*⟦°⟧")
_NOTHING = re.compile(r"(?:there (?:is|are) )?no (?:real )?(?:solutions?|roots?)|empty set|\\emptyset")
_ALL_REALS = re.compile(r"all real(?:s| numbers)|\\mathbb\s*\{?\s*R\s*\}?|\\R")
_ANGLE = re.compile(r"\\angle\s*([A-Z]+)")
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
    if text.startswith("+") and text[1:].strip() == INFINITY:
        text = INFINITY
    if match := _TUPLE_ASSIGNED.fullmatch(text):
        names, values = split_list(match[1]), split_list(match[2])
        if len(names) == len(values):
            return _several("set", [f"{n} = {v}" for n, v in zip(names, values, strict=True)], depth=depth)
    if match := _APPROXIMATE.match(text):
        return _form(text[match.end() :], depth=depth + 1)
    if text.startswith("\\{") and text.endswith("\\}") and closes(text[1:-2] + "}") == len(text) - 3:
        return _set(text[2:-2].strip(), depth=depth)
    if text.startswith("{") and closes(text) == len(text) - 1:
        return _form(text[1:-1], depth=depth + 1)
    plain = text.replace("⟦", "").replace("⟧", "").strip().casefold()
    if _NOTHING.fullmatch(plain):
        return Several("set", ())
    if _ALL_REALS.fullmatch(text) or _ALL_REALS.fullmatch(plain):
        return Several("()", (Formula(f"-{INFINITY}"), Formula(INFINITY)))
    if text[:1] in ("(", "[") and text[-1:] in (")", "]") and closes(text) == len(text) - 1:
        inside = text[1:-1]
        # With a space after the commas that separate, those without one belong to numbers.
        items = split_list(_without_thousands(inside) if ", " in inside else inside)
        if len(items) > 1:
            signs = _both_signs(text)
            return _several(text[0] + text[-1], items, depth=depth) if len(signs) == 1 else _set_of(signs, depth=depth)
    if found := _interval(text, depth=depth):
        return found
    parts = [part.strip() for part in _UNION.split(text)]
    if len(parts) > 1 and (union := _union(parts, depth=depth)):
        return union
    bare = _without_thousands(text) if depth == 0 else text
    items = [part for item in split_list(bare) for part in _AND.split(item) if part]
    if len(items) > 1:
        if len(_OR.split(bare)) == len(items):
            union = _union(items, depth=depth)
            if union and all(isinstance(form, Several) and form.name for form in union.items):  # points are no union
                return union
            if all(_CHOICE.fullmatch(item) for item in items):  # A or B chooses nothing
                return Words(" or ".join(items))
        return _several("set", items, depth=depth)
    return _single(bare, depth=depth)


def _without_thousands(text: str) -> str:
    return _THOUSANDS.sub(lambda match: match[0].replace(",", ""), text)


def _set(inside: str, *, depth: int) -> Form:
    where = condition(inside)
    found = _interval(where, depth=depth) if where is not None else None
    if found is not None:
        return found
    return _several("set", split_list(inside), depth=depth) if inside else Several("set", ())


def _interval(text: str, *, depth: int) -> Several | None:
    found = interval(text)
    if found is None:
        return None
    kind, low, high, name = found
    return Several(kind, (_form(low, depth=depth + 1), _form(high, depth=depth + 1)), name)


def _union(parts: Sequence[str], *, depth: int) -> Several | None:
    """A union of intervals; `None` where a part is something else."""
    forms = [_form(part, depth=depth + 1) for part in parts]
    intervals = [form for form in forms if isinstance(form, Several) and form.kind not in ("set", "union")]
    return Several("union", tuple(intervals)) if len(intervals) == len(parts) else None


def _several(kind: str, items: Sequence[str], *, depth: int) -> Several:
    forms: list[Form] = []
    for item in items:
        for one in _both_signs(item) if kind == "set" else [item]:
            form = _form(one, depth=depth + 1)
            # In a set, what is written twice is there once.
            if kind != "set" or not any(same(form, other, _differ) for other in forms):
                forms.append(form)
    return Several(kind, tuple(forms))


def _set_of(items: Sequence[str], *, depth: int) -> Several:
    return Several("set", tuple(_form(item, depth=depth + 1) for item in items))


def _differ(a: str, b: str) -> bool:
    return False


def _both_signs(item: str) -> list[str]:
    return [item.replace("\\pm", sign) for sign in "+-"] if item.count("\\pm") == 1 else [item]


def _single(text: str, *, depth: int) -> Form:
    if "\\pm" in text and len(_both_signs(text)) == 2:
        return _several("set", [text], depth=depth)
    if _CLOCK.fullmatch(text):
        return Words("".join(text.split()))
    if _ASSIGNED.fullmatch(text) is None and (match := _REVERSED.fullmatch(text)):  # 5 = x
        text = f"{match[2]} = {match[1]}"
    if match := _ASSIGNED.fullmatch(text):
        argument = match[2] or ""
        name = packed(match[1] + ("" if _VARIABLE_ARGUMENT.fullmatch(argument) else argument))
        inner = _form(match[3], depth=depth + 1)
        if inner.name:
            return inner
        return (
            replace(inner, name=name, whole=packed(text)) if isinstance(inner, Formula) else replace(inner, name=name)
        )
    unmarked = " ".join(text.replace("⟦", "").replace("⟧", " ").split())
    if match := _CHOICE.fullmatch(unmarked):
        return Words(match[1])
    if match := _CHOICE_WITH_TEXT.fullmatch(unmarked):
        return Words(match[1] or match[2], packed(match[3]))
    if match := _ORDINAL.fullmatch(text):
        return Number(Fraction(int(match[1])))
    words = " ".join(text.replace("⟦", " ").replace("⟧", " ").split())
    if ("⟦" in text or "\\" not in text) and _WORD.fullmatch(words) and words.casefold() not in FUNCTIONS:
        return Words(words.casefold())
    if match := _BASE.fullmatch(text.replace(" ", "")):
        whole = _in_base(match[2], match[3])
        if whole is not None:
            return Number(Fraction(-whole if match[1] else whole))
    if _TRIGONOMETRIC.search(text):
        text = _DEGREES.sub(r"(\1\\frac{\\pi}{180})", text)
    value_text, unit, scale = without_unit(text)
    value = rational(value_text)
    if value is not None:
        return Number(value * scale, unit)
    if "\\" not in text and _SENTENCE.search(text) and not _OPERATOR.search(text):
        return Words(words.casefold())
    if scale == 1 and value_text != text and (not unit or unit in KNOWN_UNITS):
        return _formula(value_text, unit)
    return _formula(text)


def _formula(text: str, unit: str = "") -> Formula:
    text = text.replace("⟦°⟧", "")  # 180° - 2x
    words = re.findall("⟦([^⟦⟧]*)⟧", text) + _ANGLE.findall(text)
    return Formula(packed(text), unit=unit, words=tuple(sorted(word.strip().casefold() for word in words)))


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
