"""The text of a completion, in whichever form TRL hands it over."""

from typing import Any


def text_of(completion: Any) -> str:
    """A completion's text, from TRL's plain or conversational form."""
    return completion if isinstance(completion, str) else completion[-1]["content"]
