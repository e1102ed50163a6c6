"""Reward functions for tests of what happens when one fails."""

import os


def fails_on_one_rank(completions: list[str], **_: object) -> list[float]:
    if os.environ.get("RANK") == "1":
        raise KeyError("the key that is not there")
    return [0.0] * len(completions)
