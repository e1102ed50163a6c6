import pytest

from tests.integration.conftest import small_settings
from trl_prism.rates import endless_warmup, scheduled_rates
from trl_prism.recipe import config_from_mapping


def role_args(tmp_path, **solver):
    config = config_from_mapping(small_settings(tmp_path / "run", solver=solver))
    return config.role_config("solver", output_dir=str(tmp_path), seed=0)


def test_a_warmup_that_never_ends_is_said_with_its_arithmetic(tmp_path):
    """A published recipe: 1,000 warm-up steps for a role that takes 80."""
    args = role_args(
        tmp_path, max_steps=20, learning_rate=5e-6, lr_scheduler_type="constant_with_warmup", warmup_steps=1000
    )
    message = endless_warmup("solver", args, num_rounds=4, over_run=True)
    assert "warm-up of 1000 updates is longer than the 80 updates of 4 rounds of 20" in message
    assert "reaches 3.95e-07, not 5.00e-06" in message  # the 80th update runs at 79 / 1000
    assert "the 20 updates of a phase" in endless_warmup("solver", args, num_rounds=4, over_run=False)


def test_a_warmup_that_ends_is_not_spoken_of(tmp_path):
    args = role_args(tmp_path, max_steps=20, learning_rate=5e-6, lr_scheduler_type="cosine", warmup_steps=10)
    assert endless_warmup("solver", args, num_rounds=4, over_run=True) is None
    rates = scheduled_rates(args, 80)
    assert len(rates) == 80 and rates[0] == 0 and max(rates) == pytest.approx(5e-6) and rates[-1] < 1e-8
