from hypothesis import given
from hypothesis import strategies as st

from trl_prism.core.curriculum import FILTERS, Candidate, curate, funnel, mark_duplicates


def candidate(question="q", agreement=0.5, answer="1", cluster=0, dropped=None):
    return Candidate(question=question, answer=answer, agreement=agreement, cluster=cluster, dropped=dropped)


def test_every_filter_and_its_order():
    pool = [
        candidate(dropped="malformed"),
        candidate(dropped="implausible"),
        candidate(dropped="duplicate"),
        candidate(answer=None, agreement=0.0),
        candidate(agreement=1.0),
        candidate(agreement=0.1),
        candidate(agreement=0.3),
        candidate(agreement=0.9),
        candidate(agreement=0.5, cluster=1),
        candidate(agreement=0.5, cluster=2),
    ]
    kept = curate(pool, band=(0.3, 0.9), max_per_cluster=1, max_questions=2)
    assert [c.dropped for c in pool] == [
        "malformed",
        "implausible",
        "duplicate",
        "unanswered",
        "too_easy",
        "too_hard",
        None,
        "over_cluster_cap",
        None,
        "surplus",
    ]
    assert kept == [pool[6], pool[8]]
    assert funnel(pool) == {**dict.fromkeys(FILTERS, 1), "kept": 2}


def test_duplicates_differ_by_more_than_spaces_and_case():
    pool = [
        candidate("What  is 2?"),
        candidate("what is 2 ?"),
        candidate("what is 3?"),
        candidate("x", dropped="malformed"),
    ]
    mark_duplicates(pool)
    assert [c.dropped for c in pool] == [None, "duplicate", None, "malformed"]


@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 3)), max_size=40), st.integers(1, 5), st.integers(1, 20))
def test_the_funnel_adds_up_and_caps_hold(rows, cap, most):
    pool = [candidate(agreement=votes / 10, cluster=cluster) for votes, cluster in rows]
    kept = curate(pool, band=(0.3, 0.9), max_per_cluster=cap, max_questions=most)
    assert sum(funnel(pool).values()) == len(pool)
    assert len(kept) == funnel(pool)["kept"] <= most
    assert all(sum(c.cluster == k for c in kept) <= cap for k in range(4))
    assert all(0.3 <= c.agreement <= 0.9 for c in kept)
