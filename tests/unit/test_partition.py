import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import make_blobs

from trl_prism.core.partition import Partition, check_embeddings, fingerprint
from trl_prism.errors import PrismError


def fit(x, k, seed=0):
    return Partition.fit(x, k, embedder="e", corpus_hash="c", seed=seed)


def blobs(n=300, k=5, d=8):
    x, y = make_blobs(n_samples=n, n_features=d, centers=k, cluster_std=0.3, random_state=0)
    return x, y


def test_finds_separate_groups():
    x, y = blobs()
    clusters = fit(x, 5).assign(x)
    for kind in range(5):
        assert len(set(clusters[y == kind])) == 1
    assert len(set(clusters)) == 5


def test_assignment_is_the_largest_cosine_with_unit_centroids():
    x, _ = blobs(60)
    partition = fit(x, 7)
    assert np.linalg.norm(partition.centroids, axis=1) == pytest.approx(np.ones(7), abs=1e-6)
    z = check_embeddings(x)
    brute = [max(range(7), key=lambda k: float(z[i] @ partition.centroids[k])) for i in range(len(z))]
    assert partition.assign(x).tolist() == brute


def test_raw_means_would_assign_otherwise():
    """Why centroids are normalised at the fit: a short mean loses questions that lie in its direction."""
    means = np.array([[0.35, 0.0], [0.6, 0.6]])
    question = np.array([[0.85, 0.5268]])
    assert np.argmax(question @ means.T) == 1
    assert Partition(means, embedder="e").assign([[0.95, 0.3122]]).tolist() == [0]


@given(st.integers(0, 3))
def test_scale_of_embeddings_does_not_matter(seed):
    x = np.random.default_rng(seed).normal(size=(40, 6))
    partition = fit(x, 4, seed)
    assert (partition.assign(x) == partition.assign(x * 7.5)).all()


def test_the_same_seed_gives_the_same_partition_whatever_the_order_of_the_corpus():
    x, _ = blobs()
    assert fit(x, 5).hash == fit(x[::-1], 5).hash == fit(np.repeat(x, 2, axis=0), 5).hash
    assert fit(x, 5).hash != fit(x, 6).hash


def test_saved_and_loaded_is_the_same(tmp_path):
    partition = fit(blobs()[0], 5)
    partition.save(tmp_path / "p")
    again = Partition.load(tmp_path / "p")
    assert (again.centroids == partition.centroids).all()
    assert (again.hash, again.embedder, again.corpus_hash, again.seed) == (partition.hash, "e", "c", 0)
    assert json.loads((tmp_path / "p" / "partition.json").read_text())["num_clusters"] == 5


def test_damage_and_absence_are_refused(tmp_path):
    with pytest.raises(PrismError, match="holds no partition"):
        Partition.load(tmp_path)
    fit(blobs()[0], 5).save(tmp_path)
    fit(blobs()[0], 6).save(tmp_path / "other")
    (tmp_path / "other" / "centroids.safetensors").replace(tmp_path / "centroids.safetensors")
    with pytest.raises(PrismError, match="do not belong together"):
        Partition.load(tmp_path)


def test_what_cannot_be_fitted_or_assigned_is_refused():
    x, _ = blobs()
    with pytest.raises(PrismError, match="3 distinct points, fewer than `num_clusters` = 4"):
        fit(np.repeat(x[:3], 50, axis=0), 4)
    bad = x.copy()
    bad[3, 1] = np.nan
    with pytest.raises(PrismError, match="1 of 300 embeddings hold NaN"):
        fit(bad, 4)
    partition = fit(x, 4)
    with pytest.raises(PrismError, match=r"expected \(n, 8\)"):
        partition.assign(x[:, :5])
    with pytest.raises(PrismError, match="NaN"):
        partition.assign(bad)
    with pytest.raises(PrismError, match="zero"):
        partition.assign(np.zeros((1, 8)))
    with pytest.raises(PrismError, match="other"):
        partition.check_embedder("other")
    with pytest.raises(PrismError, match="no direction"):
        Partition(np.zeros((2, 3)), embedder="e")


def test_fingerprint_knows_where_texts_end():
    assert fingerprint(["ab", "c"]) != fingerprint(["a", "bc"])
    assert fingerprint(["\ud800"])
