"""Real kills at random moments: what comes out is what would have come out, bit for bit."""

import json
import random

import pytest

from tests.faults.killing import finish, kill_in, kill_until_done, results, start, write_recipe
from tests.integration.conftest import ROOT


pytestmark = pytest.mark.timeout(900)


def test_six_kills_and_the_same_result(tmp_path, expected):
    hit = kill_until_done(tmp_path, seed=4, num_kills=6, expected=expected)
    assert len(hit) >= 5, hit


def test_two_ranks_one_of_them_killed(tmp_path):
    """Under DDP: the launcher ends the other rank, the lock is free, and the result is that of two whole ranks."""
    folder, log = tmp_path, tmp_path / "log"
    whole = write_recipe(folder, folder / "whole")
    assert finish(whole, log=log, config="ddp_cpu") == 0, log.read_text()[-3000:]
    run = folder / "run"
    recipe = write_recipe(folder, run)
    process = start(recipe, log=log, config="ddp_cpu")
    assert kill_in(process, run, "1-solver", 1.5, "rank") is not None
    assert finish(recipe, log=log, config="ddp_cpu") == 0, log.read_text()[-3000:]
    assert results(run) == results(folder / "whole")


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_thirty_kills(tmp_path, expected):
    hit = []
    for seed in range(100, 105):
        hit += kill_until_done(tmp_path, seed=seed, num_kills=7, expected=expected)
    (ROOT / "tests" / "faults" / "last_kills.json").write_text(json.dumps(hit))
    assert len(hit) >= 30, hit
    assert len({where for where, _ in hit}) >= 6, hit


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("config", ["ddp_cpu", "zero3_cpu"])
def test_kills_on_two_ranks(config, tmp_path):
    changes = {"bf16": True} if config == "zero3_cpu" else {}
    whole = write_recipe(tmp_path, tmp_path / "whole", **changes)
    log = tmp_path / "log"
    assert finish(whole, log=log, config=config) == 0, log.read_text()[-3000:]
    seed = random.Random(config).randrange(1000)
    hit = kill_until_done(
        tmp_path, seed=seed, num_kills=5, expected=results(tmp_path / "whole"), config=config, changes=changes
    )
    assert len(hit) >= 4, hit
