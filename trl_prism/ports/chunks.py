"""Completions that a long draw has already made, kept until the draw is over."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trl_prism.core.partition import fingerprint
from trl_prism.ports.files import write_text
from trl_prism.ports.samplers import Completion, SamplingParams
from trl_prism.ports.texts import Prompt


class ChunkStore:
    """One file for each chunk of a draw, written by the rank that drew it.

    A chunk is found again only for the same prompts, parameters and seed, so nothing can be taken for another draw.

    Args:
        folder (`Path`): Where the files lie; made when it is needed.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def read(self, number: int, prompts: Sequence[Prompt], **how: Any) -> list[list[Completion]] | None:
        """The completions of a chunk, or `None` where they are not there, or damaged."""
        try:
            content = json.loads(self._path(number).read_text(encoding="utf-8"))
            if content["identity"] != _identity(prompts, **how):
                return None
            return [[Completion(**completion) for completion in row] for row in content["rows"]]
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, number: int, rows: Sequence[Sequence[Completion]], prompts: Sequence[Prompt], **how: Any) -> None:
        content = {
            "identity": _identity(prompts, **how),
            "rows": [[asdict(completion) for completion in row] for row in rows],
        }
        write_text(self._path(number), json.dumps(content))

    def remove(self) -> None:
        """Removes all, once what was made of them is safe."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06d}.json"


def _identity(prompts: Sequence[Prompt], *, num_samples: int, params: SamplingParams, seed: int) -> str:
    """What tells a chunk from others."""
    return fingerprint([json.dumps([list(prompts), num_samples, asdict(params), seed], sort_keys=True, default=str)])
