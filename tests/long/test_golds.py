"""Golds of different questions through all of `equivalent`, Math-Verify included."""

import random

import pytest

from tests.unit.test_canonical import golds
from trl_prism.answers import equivalent
from trl_prism.core.canonical import canonical
from trl_prism.core.forms import Formula
from trl_prism.ports.verifier import Verifier


pytestmark = pytest.mark.long


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
