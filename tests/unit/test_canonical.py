import json
import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_prism.core import canonical as module
from trl_prism.core.arithmetic import rational
from trl_prism.core.canonical import Number, canonical, same


def never(a, b):
    return False


def agree(a, b, equal_formulas=never):
    return same(canonical(a), canonical(b), equal_formulas)


def rows_of_the_table():
    for line in module.__doc__.splitlines():
        if line.startswith("| `"):
            groups, verdict = line.strip("| ").split(" | ")[:2]
            for group in groups.split("; "):
                first, *others = re.findall(r"`([^`]*)`", group)
                for other in others:
                    yield first, other, verdict == "yes"


ROWS = list(rows_of_the_table())


def test_the_table_is_read():
    assert len(ROWS) == 39


@pytest.mark.parametrize(("a", "b", "expected"), ROWS)
def test_every_decision_as_documented(a, b, expected):
    assert agree(a, b) is expected
    assert agree(b, a) is expected


def golds(data):
    def last_box(solution):
        from trl_prism.core.extraction import last_box

        return last_box(solution) or ""

    readers = {
        "math500": lambda row: [row["answer"]],
        "minerva_math": lambda row: [last_box(row["solution"])],
        "olympiadbench": lambda row: row["final_answer"],
        "gaokao2023en": lambda row: [row["answer"]],
        "gsm8k_test": lambda row: [row["answer"].split("####")[1]],
        "amc23": lambda row: [row["answer"]],
        "aime24": lambda row: [row["answer"]],
        "aime25": lambda row: [row["expected_answer"]],
        "svamp": lambda row: [row["Answer"]],
        "mawps_addsub": lambda row: [row["target"]],
    }
    for name, read in readers.items():
        for line in (data / f"{name}.jsonl").read_text().splitlines():
            for gold in read(json.loads(line)):
                yield name, str(gold)


def test_every_gold_equals_itself(data):
    assert [(name, gold) for name, gold in golds(data) if not agree(gold, gold)] == []


REWRITES = {
    "spaces": lambda t: t.replace("+", " + ").replace("=", " = ").replace(",", ", ") if "," not in t else f" {t} ",
    "dfrac": lambda t: t.replace("\\frac", "\\dfrac"),
    "dollars": lambda t: f"${t}$" if "$" not in t else t,
    "left": lambda t: (
        re.sub(r"(?<!\\left)(?<!\\big)\(", r"\\left(", t).replace(")", r"\right)")
        if "\\left" not in t and "\\right" not in t and t.count("(") == t.count(")")
        else t
    ),
    "thin spaces": lambda t: t + "\\,",
    "full stop": lambda t: t.removesuffix(".") + ".",
}


@pytest.mark.parametrize("rewrite", REWRITES)
def test_golds_rewritten_stay_equal(data, rewrite):
    changed = [(name, gold, REWRITES[rewrite](gold)) for name, gold in golds(data)]
    assert [(name, gold, text) for name, gold, text in changed if not agree(gold, text)] == []


def test_numbers_take_units_and_other_spellings(data):
    wrong = []
    for name, gold in golds(data):
        form = canonical(gold)
        if isinstance(form, Number) and not form.unit and not re.search(r"_|,|\\{", gold):
            others = [gold + r" \text{ cm}", gold + "\\%", gold + "^\\circ"]
            if form.value.denominator != 1:
                others.append(f"\\frac{{{form.value.numerator}}}{{{form.value.denominator}}}")
                others.append(f"{form.value.numerator}/{form.value.denominator}")
            else:
                others += [f"{form.value.numerator:,}", f"{form.value.numerator}.0"]
            wrong += [(name, gold, other) for other in others if not agree(gold, other)]
    assert wrong == []


@given(st.fractions(), st.fractions())
def test_rationals_exactly(a, b):
    for text in (f"{a.numerator}/{a.denominator}", rf"\frac{{{a.numerator}}}{{{a.denominator}}}"):
        assert rational(text) == a
    assert agree(f"{a}", f"{b}") is (a == b)


numbers = st.integers(0, 30)
expressions = st.recursive(
    numbers.map(lambda n: (str(n), Fraction(n))),
    lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(
        lambda parts: (
            f"({parts[0][0]}{parts[1]}{parts[2][0]})",
            None
            if parts[0][1] is None or parts[2][1] is None or (parts[1] == "/" and parts[2][1] == 0)
            else {
                "+": lambda x, y: x + y,
                "-": lambda x, y: x - y,
                "*": lambda x, y: x * y,
                "/": lambda x, y: x / y,
            }[parts[1]](parts[0][1], parts[2][1]),
        )
    ),
    max_leaves=8,
)


@given(expressions)
def test_arithmetic_against_python(expression):
    text, value = expression
    assert rational(text) == value


@given(st.text(max_size=60))
def test_never_raises_and_equals_itself(text):
    assert agree(text, text)


@given(
    st.lists(
        st.sampled_from(["1", "2", "x", "{", "}", "\\frac", "(", ")", "^", ",", "_", "\\sqrt", "⟦", " "]), max_size=14
    )
)
def test_never_raises_on_fragments(parts):
    text = "".join(parts)
    assert agree(text, text)


@pytest.mark.parametrize(
    "text", ["9^{9^9}", "10^{10^7}", "9" * 1999, "2^{1000}" * 50, "(" * 1000, "\\frac" * 300, "1e999999"]
)
def test_nothing_is_computed_beyond_its_bounds(text):
    canonical(text)


def test_formulas_ask_and_numbers_do_not():
    asked = []

    def ask(a, b):
        asked.append((a, b))
        return False

    agree("0.5", "1/2", ask)
    agree("2", "3", ask)
    agree("(1,2)", "(1,3)", ask)
    agree("even", "odd", ask)
    assert asked == []
    agree(r"\frac{\pi}{2}", "x", ask)
    assert len(asked) == 1
