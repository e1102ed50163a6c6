"""Golds of different questions through all of `equivalent`, Math-Verify included."""

import random

import pytest

from tests.unit.test_canonical import golds
from trl_prism.answers import equivalent
from trl_prism.core.sameness.canonical import canonical
from trl_prism.core.sameness.forms import Formula, Number, same
from trl_prism.ports.verifier import Verifier


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_formulas_of_different_questions_differ(data):
    formulas = sorted({gold for _, gold in golds(data) if isinstance(canonical(gold), Formula)})
    rng = random.Random(0)
    pairs = [tuple(rng.sample(formulas, 2)) for _ in range(3000)]
    verifier = Verifier()
    equal = [pair for pair in pairs if equivalent(*pair, verifier=verifier)]
    verifier.close()
    assert equal == []
    failed = sum(verifier.causes.values())
    assert failed < 0.02 * len(pairs), verifier.causes


# Beside numbers of the same value: golds of different questions, of all sets, that are the same answer.
EQUAL = {
    frozenset(pair)
    for pair in (
        ("$2n$", "$2 n$"),
        (r"$4\sqrt{5}$", r"$4 \sqrt{5}$"),
        (r"$k \geqslant 2$", r"$[2,+\infty)$"),
        ("(2,4)", "$(2,4)$"),
        ("1+2i", "$1+2i$"),
        ("1,-2", "-2,1"),
        ("1,3,5", r"$\{1,3,5\}$"),
        ("2,4,3", "2,3,4"),
        (r"2\sqrt{5}", r"2 \sqrt{5}"),
        (r"6\sqrt{2}", r"$6 \sqrt{2}$"),
        (r"\sqrt{5}", r"$\sqrt{5}$"),
        (r"\text{(B)}", "B"),
        (r"\text{(C)}", "C"),
        (r"\text{(E)}", "E"),
    )
}


@pytest.mark.timeout(300)
def test_all_golds_of_all_sets_by_their_canonical_forms(data):
    texts = sorted({gold for _, gold in golds(data)})
    forms = [canonical(text) for text in texts]
    found = set()
    for i, form in enumerate(forms):
        for j in range(i):
            if isinstance(form, Number) and isinstance(forms[j], Number):
                if form.value != forms[j].value:
                    assert not same(form, forms[j], lambda a, b: True)
            elif same(form, forms[j], lambda a, b: False):
                found.add(frozenset((texts[i], texts[j])))
    assert found == EQUAL
