import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_prism.core.coverage import VisitMemory, count, coverage, entropy_of_labels, semantic_diversity
from trl_prism.errors import PrismError


def bonus_after(update: str, *, batch: int, num_batches: int = 6, num_clusters: int = 128) -> np.ndarray:
    memory = VisitMemory(num_clusters, decay=0.99, update=update)
    for _ in range(num_batches):
        memory.update(np.zeros(batch, dtype=int))
    return memory.rarity


def test_indicator_is_nearly_inert():
    """A visited cluster stays at exactly 1, an unvisited one falls as 0.99^t: 4 % of bonus after six batches."""
    memory = VisitMemory(128, decay=0.99, update="indicator")
    for _ in range(6):
        memory.update([0])
    assert memory.visits[0] == 1.0
    assert memory.visits[1] == pytest.approx(0.99**6)
    d = memory.rarity
    assert d[1] / d[0] - 1 == pytest.approx(0.04, abs=0.025)


@pytest.mark.parametrize(("batch", "expected"), [(8, 0.225), (64, 0.008), (2048, 0.000)])
def test_question_depends_on_the_batch_size(batch, expected):
    assert bonus_after("question", batch=batch)[0] == pytest.approx(expected, abs=5e-4)


def test_share_does_not():
    bonuses = [bonus_after("share", batch=batch)[0] for batch in (8, 64, 2048)]
    assert bonuses == pytest.approx([bonuses[0]] * 3)
    memory = VisitMemory(128, update="share")
    memory.update(np.arange(64) % 7)
    assert memory.visits.mean() == pytest.approx(1.0)


def test_one_update_by_hand():
    memory = VisitMemory(3, decay=0.5, update="question")
    memory.update([0, 0, 2])
    assert memory.visits.tolist() == [0.5 + 0.5 * 2, 0.5, 0.5 + 0.5 * 1]


@pytest.mark.parametrize("update", ["question", "indicator", "share"])
def test_an_empty_batch_leaves_the_memory_alone(update):
    memory = VisitMemory(4, update=update)
    memory.update([])
    assert memory.visits.tolist() == [1.0] * 4 and memory.num_updates == 0


@given(
    batches=st.lists(st.lists(st.integers(0, 6), max_size=30), max_size=12),
    update=st.sampled_from(["question", "share"]),
)
def test_saved_and_loaded_is_the_same_to_the_last_bit(batches, update):
    memory = VisitMemory(7, decay=0.9, update=update)
    for batch in batches:
        memory.update(batch)
    again = VisitMemory(7, decay=0.9, update=update)
    again.load_state_dict(json.loads(json.dumps(memory.state_dict())))
    assert (again.visits == memory.visits).all() and again.num_updates == memory.num_updates
    for one in (memory, again):
        one.update([1, 2])
    assert (again.visits == memory.visits).all()


def test_a_state_of_other_settings_or_with_damage_is_refused():
    state = VisitMemory(4).state_dict()
    with pytest.raises(PrismError, match="num_clusters"):
        VisitMemory(5).load_state_dict(state)
    with pytest.raises(PrismError, match="share"):
        VisitMemory(4, update="share").load_state_dict(state)
    with pytest.raises(PrismError, match="damaged"):
        VisitMemory(4).load_state_dict({**state, "visits": [1.0, float("nan"), 1.0, 1.0]})


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [({"num_clusters": 0}, "at least 1"), ({"decay": 1.0}, r"\[0, 1\)"), ({"update": "questions"}, "must be one of")],
)
def test_bad_settings_are_refused(kwargs, message):
    with pytest.raises(PrismError, match=message):
        VisitMemory(**{"num_clusters": 4, **kwargs})


def test_clusters_out_of_range_are_refused():
    with pytest.raises(PrismError, match="outside 0 to 2"):
        count([0, 3], num_clusters=3)
    with pytest.raises(PrismError, match="outside 0 to 2"):
        count([-1], num_clusters=3)


def gini_brute(n):
    n = np.asarray(n, dtype=float)
    return np.abs(n[:, None] - n[None, :]).sum() / (2 * len(n) * n.sum())


@given(n=st.lists(st.integers(0, 50), min_size=2, max_size=30))
def test_measures_against_brute_force(n):
    found = coverage(n)
    if sum(n) == 0:
        assert (found.entropy, found.gini, found.active_clusters) == (0, 0, 0)
        return
    assert found.gini == pytest.approx(gini_brute(n), abs=1e-9)
    p = [x / sum(n) for x in n if x]
    assert found.entropy == pytest.approx(-sum(x * np.log(x) for x in p) / np.log(len(n)), abs=1e-9)
    assert found.active_clusters == sum(x > 0 for x in n)
    assert 0 <= found.entropy <= 1 + 1e-12 and 0 <= found.top_share <= 1


def test_extremes_of_spread():
    even, single = coverage([3] * 8), coverage([0] * 7 + [24])
    assert (even.entropy, even.gini) == (pytest.approx(1.0), pytest.approx(0.0))
    assert (single.entropy, single.gini) == (0.0, pytest.approx(1 - 1 / 8))
    assert entropy_of_labels([], num_kinds=4) == 0.0


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1), st.floats(0.1, 1)), min_size=2, max_size=12))
def test_semantic_diversity_against_all_pairs(rows):
    x = np.array(rows)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    pairs = [x[i] @ x[j] for i in range(len(x)) for j in range(i)]
    assert semantic_diversity(x) == pytest.approx(1 - np.mean(pairs), abs=1e-9)
    assert semantic_diversity(np.repeat(x[:1], 5, axis=0)) == pytest.approx(0, abs=1e-9)
