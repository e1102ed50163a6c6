import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_prism.batching import solve_batching
from trl_prism.errors import PrismError


def solve(**kwargs):
    given_kwargs = {
        "prompts_per_step": 24,
        "prompts_per_update": None,
        "num_generations": 8,
        "max_per_device": 64,
        "num_ranks": 1,
        "role": "solver",
    }
    return solve_batching(**{**given_kwargs, **kwargs})


@given(
    updates=st.integers(1, 6),
    prompts=st.integers(1, 40),
    generations=st.integers(2, 16),
    most=st.integers(1, 70),
    ranks=st.sampled_from([1, 2, 3, 4, 8]),
)
def test_a_step_has_the_same_prompts_on_any_number_of_ranks(updates, prompts, generations, most, ranks):
    try:
        b = solve(
            prompts_per_step=updates * prompts,
            prompts_per_update=prompts,
            num_generations=generations,
            max_per_device=most,
            num_ranks=ranks,
        )
    except PrismError:
        assert prompts * generations % ranks
        return
    assert b.per_device_train_batch_size <= most
    assert b.per_device_train_batch_size * b.gradient_accumulation_steps * ranks == prompts * generations
    assert b.steps_per_generation == updates * b.gradient_accumulation_steps


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"prompts_per_update": 5}, "multiples are 20 and 25"),
        ({"prompts_per_step": 3, "num_generations": 3, "num_ranks": 2}, "prompts that they can are 2 and 4"),
        ({"num_generations": 1}, "at least 2"),
        ({"prompts_per_step": 0}, "at least 1"),
        ({"max_per_device": 0}, "per_device_train_batch_size"),
    ],
)
def test_what_does_not_divide_names_the_nearest_that_does(kwargs, message):
    with pytest.raises(PrismError, match=message):
        solve(**kwargs)
