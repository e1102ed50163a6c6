import math
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_prism.core.answers import vote


answers = st.lists(st.sampled_from(["1", "2", "2.0", "x", None]), min_size=1, max_size=8)


def loosely(a, b):
    """Neither symmetric nor transitive, as equality checks of mathematics are."""
    return (a, b) in {("2", "2.0"), ("2.0", "x")}


def test_a_missing_answer_is_a_disagreement_and_never_wins():
    v = vote([None, None, None, "7"])
    assert (v.answer, v.agreement, v.margin, v.frac_unanswered) == ("7", 0.25, 0.25, 0.75)
    v = vote([None, None])
    assert (v.answer, v.agreement, v.frac_unanswered) == (None, 0.0, 1.0)
    assert vote(["None", None, None]).answer == "None"
    assert vote([]).answer is None


def test_figures_by_hand():
    v = vote(["a", "a", "a", "b", "b", None])
    assert (v.agreement, v.margin) == (3 / 6, 1 / 6)
    assert v.entropy == pytest.approx(-(0.6 * math.log(0.6) + 0.4 * math.log(0.4)))


def test_ties_go_to_the_first_in_sorted_order():
    assert vote(["b", "a"]).answer == "a"


@given(answers)
def test_order_does_not_matter(given_answers):
    for equivalent in (None, loosely):
        expected = vote(given_answers, equivalent)
        for other in list(permutations(given_answers))[:24]:
            assert vote(other, equivalent) == expected


@given(answers)
def test_ranges_and_that_a_missing_answer_never_raises_agreement(given_answers):
    v = vote(given_answers, loosely)
    assert 0 <= v.margin <= v.agreement <= 1 and 0 <= v.frac_unanswered <= 1
    assert vote([*given_answers, None], loosely).agreement <= v.agreement


def test_groups_are_connected_components():
    v = vote(["2", "2.0", "x", "9"], loosely)
    assert (v.answer, v.agreement) == ("2", 0.75)
