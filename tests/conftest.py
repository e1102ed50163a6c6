"""Shared by all tests: offline, one thread a process, real data where its folder is at hand."""

import os
from pathlib import Path


os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import pytest


ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared" / "data"


@pytest.fixture
def data() -> Path:
    """The folder of real public test sets, or a skip where it is absent."""
    if not DATA.is_dir():
        pytest.skip(f"the folder of public test sets is absent: {DATA.name}")
    return DATA
