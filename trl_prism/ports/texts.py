"""Prompts and completions in whichever form TRL takes and gives them."""

from typing import Any


# Plain text, or messages for a chat template.
Prompt = str | list[dict[str, str]]


def text_of(completion: Any) -> str:
    """A completion's text, from TRL's plain or conversational form."""
    return completion if isinstance(completion, str) else completion[-1]["content"]
