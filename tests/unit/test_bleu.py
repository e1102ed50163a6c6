"""The fast BLEU clustering against nltk and scikit-learn, on any input and to the last bit."""

import json

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
from sklearn.cluster import AgglomerativeClustering

from trl_prism.core.bleu import bleu_distances, cluster_share


def oracle_distances(questions):
    n = len(questions)
    distances = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1, n):
            bleu = sentence_bleu(
                [questions[j].split()], questions[i].split(), smoothing_function=SmoothingFunction().method1
            )
            distances[i, j] = distances[j, i] = 1 - bleu
    return distances


def oracle_share(questions):
    labels = AgglomerativeClustering(
        n_clusters=None, distance_threshold=0.5, metric="precomputed", linkage="average"
    ).fit_predict(oracle_distances(questions))
    return np.bincount(labels)[labels] / len(questions)


words = st.sampled_from(["a", "b", "c", "the", "7", "x"])
texts = st.lists(words, max_size=12).map(" ".join)


@given(questions=st.lists(texts, min_size=2, max_size=9))
@example(questions=["", ""])
@example(questions=["a", "a"])
@example(questions=["a a a a a", "a"])
@example(questions=["a b c", "a b c", "c b a"])
def test_equals_the_oracle(questions):
    assert (bleu_distances(questions) == oracle_distances(questions)).all()
    assert (cluster_share(questions) == oracle_share(questions)).all()


@given(st.lists(st.text(max_size=30), min_size=2, max_size=6))
def test_equals_the_oracle_on_arbitrary_text(questions):
    assert (bleu_distances(questions) == oracle_distances(questions)).all()


def test_equals_the_oracle_on_real_questions(data):
    lines = (data / "gsm8k_test.jsonl").read_text().splitlines()[:48]
    questions = [json.loads(line)["question"] for line in lines]
    questions += [question.replace("Janet", "Ann") for question in questions[:16]]
    assert (bleu_distances(questions) == oracle_distances(questions)).all()
    assert (cluster_share(questions) == oracle_share(questions)).all()


def test_counts_too_large_for_one_integer_take_the_other_way():
    long = " ".join(["a"] * 4000)
    questions = [long, long + " b", "c"]
    assert (bleu_distances(questions) == oracle_distances(questions)).all()


def test_one_question_and_none():
    assert cluster_share(["what"]).tolist() == [1.0]
    assert cluster_share([]).tolist() == []


def test_empty_texts_do_not_resemble_each_other():
    assert cluster_share(["", "", "1 + 1"]).tolist() == pytest.approx([1 / 3] * 3)
