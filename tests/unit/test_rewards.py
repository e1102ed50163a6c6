import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_prism.core.rewards import gate, in_band, prism_reward, rarity, rzero_reward
from trl_prism.errors import PrismError


# The table of the gate with ten votes: band [0.3, 0.9], center 0.75, width 0.4.
GATE_TABLE = {0: 0, 1: 0, 2: 0, 3: 0, 4: 0.125, 5: 0.375, 6: 0.625, 7: 0.875, 8: 0.875, 9: 0.625, 10: 0}


@pytest.mark.parametrize(("votes", "expected"), GATE_TABLE.items())
def test_gate_with_ten_votes(votes, expected):
    assert gate(votes / 10) == pytest.approx(expected, abs=1e-12)


def test_gate_is_zero_outside_of_the_band_even_where_the_triangle_is_not():
    assert gate(1.0) == 0 and 1 - abs(1.0 - 0.75) / 0.4 == pytest.approx(0.375)
    assert gate(0.45, band=(0.5, 0.9)) == 0


@pytest.mark.parametrize("k", range(11))
def test_the_band_is_closed_for_every_way_of_computing_a_share(k):
    for p in (k / 10, sum([0.1] * k), 1 - (10 - k) / 10):
        assert in_band(p, (0.3, 0.9)) == (3 <= k <= 9), p


def test_rarity_values_of_the_paper():
    assert rarity(np.ones(128)) == pytest.approx(np.full(128, 0.36787944))
    n = np.array([0.0, 1.0, 2.0, 5.0])
    assert rarity(n) == pytest.approx(np.exp(-n / 2.0))
    assert rarity(np.zeros(3)) == pytest.approx(np.full(3, np.exp(-1)))


def test_highest_reward_is_one_plus_lambda():
    assert prism_reward(0.75, 1.0, True) == pytest.approx(6.0)
    assert prism_reward(0.75, 1.0, True, coverage_weight=0.0) == pytest.approx(1.0)


def test_malformed_is_minus_one_whatever_else_is_known():
    assert prism_reward([0.75, 0.0], [1.0, 0.0], [False, False]).tolist() == [-1.0, -1.0]
    assert rzero_reward([0.5], [0.25], [False]).tolist() == [-1.25]


def test_rzero_code_and_paper_differ_by_a_factor_of_two():
    p = np.linspace(0, 1, 11)
    code, paper = (rzero_reward(p, np.zeros(11), np.ones(11), uncertainty=u) for u in ("code", "paper"))
    assert paper == pytest.approx(2 * code)
    with pytest.raises(PrismError, match="'code' or 'paper'"):
        rzero_reward(p, p, p, uncertainty="both")


@pytest.mark.parametrize("band", [(0.9, 0.3), (0.3,), (-0.1, 0.5), (0.5, 1.1)])
def test_a_band_that_is_none_is_refused(band):
    with pytest.raises(PrismError, match="low < high"):
        in_band(0.5, band)


shares = st.floats(0, 1)


@given(p=shares, d=st.floats(1e-6, 1), weight=st.floats(0, 20))
def test_reward_lies_in_its_range_and_grows_with_rarity(p, d, weight):
    r = float(prism_reward(p, d, True, coverage_weight=weight))
    assert 0 <= r <= 1 + weight + 1e-9
    assert r >= float(prism_reward(p, d / 2, True, coverage_weight=weight))


@given(n=st.lists(st.floats(0, 1e6), min_size=1, max_size=40), scale=st.floats(0.01, 100))
def test_rarity_orders_by_visits_and_ignores_their_scale(n, scale):
    n = np.array(n)
    d = rarity(n)
    assert (d > 0).all() or n.max() / max(n.mean(), 1e-9) > 700
    assert (d <= 1).all()
    order = np.argsort(n)
    assert (np.diff(d[order]) <= 1e-12).all()
    if n.mean() > 1e-3:
        assert rarity(n * scale) == pytest.approx(d, abs=1e-9)
