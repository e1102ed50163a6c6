from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_prism.core.scores import mean_with_interval, pass_at_k
from trl_prism.errors import PrismError


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_pass_at_k_counts_subsets(right, data):
    k = data.draw(st.integers(1, len(right)))
    subsets = list(combinations(right, k))
    assert pass_at_k(sum(right), len(right), k) == pytest.approx(np.mean([any(subset) for subset in subsets]))


def test_pass_at_k_refuses_more_than_there_are():
    with pytest.raises(PrismError, match="at least 9 samples, there are 8"):
        pass_at_k(1, 8, 9)


def test_interval_covers_the_mean_of_a_coin():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(100):
        score = mean_with_interval(rng.random(200) < 0.3)
        assert score.low <= score.value <= score.high
        covered += score.low <= 0.3 <= score.high
    assert 88 <= covered <= 100


def test_width_is_that_of_the_standard_error():
    values = np.arange(400) % 4 == 0
    score = mean_with_interval(values)
    error = np.sqrt(0.25 * 0.75 / 400)
    assert (score.high - score.low) / (2 * 1.96 * error) == pytest.approx(1, abs=0.1)


def test_degenerate_values_have_no_width():
    for values in ([1.0], [0.0, 0.0, 0.0], [True] * 5):
        score = mean_with_interval(values)
        assert score.low == score.value == score.high
    with pytest.raises(PrismError, match="no problems"):
        mean_with_interval([])
