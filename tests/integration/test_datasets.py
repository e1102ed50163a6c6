"""Data sets by the real `datasets` library, from a folder laid out as on the Hub."""

import json

import pytest

from trl_prism.domains.maths import Maths
from trl_prism.errors import PrismError
from trl_prism.ports.datasets import read_hub


@pytest.fixture
def repository(tmp_path):
    for split, rows in {"train": [1, 2], "test": [3]}.items():
        lines = [json.dumps({"question": f"{n} + {n}?", "answer": str(2 * n)}) for n in rows]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    return str(tmp_path)


def test_splits_and_source(repository):
    rows, source = read_hub(repository, (None,), "test", None)
    assert [row["answer"] for row in rows] == ["6"]
    assert source["split"] == "test" and source["config"] is None
    rows, _ = read_hub(repository, (None,), "train+test", None)
    assert [row["answer"] for row in rows] == ["2", "4", "6"]


def test_one_clear_error(repository):
    with pytest.raises(PrismError, match=r"split dev.*cannot be loaded"):
        read_hub(repository, (None,), "dev", None)
    with pytest.raises(PrismError, match="configuration other"):
        read_hub(repository, ("other",), "test", None)


def test_the_reference_corpus(repository):
    assert Maths(reference=repository, reference_column="question").reference_questions() == ["1 + 1?", "2 + 2?"]
    with pytest.raises(PrismError, match="no column 'problem'; it has question, answer"):
        Maths(reference=repository).reference_questions()
