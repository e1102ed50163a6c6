"""The lab's claims over seeds and both warm starts, with a margin that a run without learning does not reach."""

import pytest
import yaml

from tests.integration.conftest import ROOT
from trl_prism.recipe import config_from_mapping
from trl_prism.self_play import play


pytestmark = pytest.mark.long


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("seed", "warm_start"), [(10, 0), (11, 1), (12, 0)])
def test_two_rounds_of_prism_teach_and_keep_the_curriculum_broad(seed, warm_start, tmp_path):
    settings = yaml.safe_load((ROOT / "recipes" / "lab" / "prism.yaml").read_text())
    settings.update(
        model_name_or_path=str(ROOT / "prism_lab" / "weights" / str(warm_start)),
        output_dir=str(tmp_path / "run"),
        seed=seed,
        num_rounds=2,
    )
    base, _, last = play(config_from_mapping(settings))
    # The standard error of an accuracy on 320 problems is below 0.03.
    assert last["solver/accuracy"] > base["solver/accuracy"] + 0.15
    assert last["solver/maj_at_k"] > base["solver/maj_at_k"] - 0.03
    assert last["diversity/semantic"] > 0.85 * base["diversity/semantic"]
    # Base: its votes know more than its greedy answer.
    assert base["solver/maj_at_k"] > base["solver/accuracy"] + 0.15
