"""Answering problems, greedily and by sampling: resumable, with the same numbers on any number of ranks."""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trl_prism.core.partition import fingerprint
from trl_prism.core.seeds import derived_seed
from trl_prism.domains.base import Domain, Problem
from trl_prism.errors import PrismError
from trl_prism.ports import stopping
from trl_prism.ports.files import one_clear_error, write_text
from trl_prism.ports.ranks import dealt, from_main, is_main, num_ranks
from trl_prism.ports.samplers import Completion, Sampler, SamplingParams, encode


@dataclass(frozen=True)
class ProblemResult:
    """A model's answers to one problem.

    Attributes:
        index (`int`): The problem's place in its test set.
        greedy (`str`, *optional*): The greedy answer, `None` where the completion holds none.
        completion (`str`): The greedy completion.
        greedy_right (`bool`): Whether its answer is right.
        answers (`tuple[str | None, ...]`): The sampled answers.
        right (`tuple[bool, ...]`): Which of them are right.
        majority (`str`, *optional*): The majority of the sampled answers.
        majority_right (`bool`): Whether it is right.
        num_truncated (`int`): Completions, the greedy one included, that were cut off.
    """

    index: int
    greedy: str | None
    completion: str
    greedy_right: bool
    answers: tuple[str | None, ...]
    right: tuple[bool, ...]
    majority: str | None
    majority_right: bool
    num_truncated: int


def evaluate(
    sampler: Sampler,
    domain: Domain,
    problems: Sequence[Problem],
    *,
    num_samples: int,
    params: SamplingParams,
    seed: int,
    tokenizer: Any,
    batch_size: int = 64,
    folder: str | os.PathLike[str] | None = None,
    model: str = "",
    on_progress: Callable[[int], None] | None = None,
) -> list[ProblemResult]:
    """Answers every problem once greedily and `num_samples` times by sampling, and marks the answers.

    Problems are sorted by length and cut into chunks; every chunk draws from a random stream of its own. The chunks
    are dealt to the ranks in turn, so the numbers do not depend on how many there are.

    Args:
        sampler ([`~trl_prism.ports.samplers.Sampler`]): The model.
        domain ([`~trl_prism.domains.base.Domain`]): Asks, reads and marks.
        problems (`Sequence[Problem]`): Problems with known answers.
        num_samples (`int`): Sampled answers per problem; 0 for greedy only.
        params ([`~trl_prism.ports.samplers.SamplingParams`]): How they are sampled.
        seed (`int`): With the same seed, one model gives the same answers.
        tokenizer: Measures lengths.
        batch_size (`int`, *optional*, defaults to `64`): Sequences in a chunk, about.
        folder (`str`, *optional*): Completions are kept here as they come. What is there already is not asked again.
        model (`str`, *optional*): What tells the model from others, as [`model_fingerprint`] does; completions of
            another are not taken for its own.

    Returns:
        `list[ProblemResult]`: in the order of the problems, on every rank.

    Raises:
        PrismError: if the folder holds the completions of another evaluation.
    """
    prompts = [domain.solver_prompt(problem.question) for problem in problems]
    lengths = [len(ids) for ids in encode(tokenizer, prompts)]
    order = sorted(range(len(problems)), key=lambda i: (-lengths[i], i))
    size = max(1, batch_size // max(1, num_samples))
    chunks = [order[start : start + size] for start in range(0, len(order), size)]
    greedy_params = SamplingParams(max_tokens=params.max_tokens, temperature=0.0, stop=params.stop)

    def answer(number: int) -> list[tuple[int, list[Completion]]]:
        stopping.check()
        asked = [prompts[i] for i in chunks[number]]
        own_seed = derived_seed([seed, number])
        greedy = sampler.sample(asked, num_samples=1, params=greedy_params, seed=own_seed)
        sampled = (
            sampler.sample(asked, num_samples=num_samples, params=params, seed=own_seed)
            if num_samples
            else [[] for _ in asked]
        )
        return [(i, g + s) for i, g, s in zip(chunks[number], greedy, sampled, strict=True)]

    identity = _fingerprint(prompts, params=params, num_samples=num_samples, seed=seed, size=size, model=model)
    store = _Store(folder, identity)
    left = [number for number, chunk in enumerate(chunks) if not store.holds(chunk)]
    for start in range(0, len(left), num_ranks()):
        turn = left[start : start + num_ranks()]
        answered = dealt(turn, 1, lambda _, numbers: [answer(number) for number in numbers], "answering")
        store.add([row for rows in answered for row in rows])
        if on_progress:
            on_progress(sum(len(chunks[number]) for number in turn) * (1 + num_samples))
    # On one rank: a verdict may depend on how long it takes, and all ranks must have the same figures.
    completions = [store.completions[i] for i in range(len(problems))]
    return from_main(lambda: _mark(domain, problems, completions), "marking")


def model_fingerprint(path: str, **loading: Any) -> str:
    """What tells a model from others: its files if it lies in a folder, its Hub id otherwise, and how it is loaded.

    Args:
        path (`str`): Folder or Hub id.
        loading (`Any`): Whatever else decides its answers: revision, type of the weights, engine.
    """
    folder, parts = Path(path), [json.dumps(loading, sort_keys=True, default=str)]
    if not folder.is_dir():
        return fingerprint([path, *parts])
    for file in sorted(folder.iterdir()):
        if file.name in ("trainer_state.json", "training_args.bin"):  # they hold times and paths
            continue
        if file.suffix in (".safetensors", ".bin", ".json", ".jinja", ".txt", ".model") and file.is_file():
            with file.open("rb") as content:
                parts.append(f"{file.name} {hashlib.file_digest(content, 'sha256').hexdigest()}")
    return fingerprint(parts)


def _mark(domain: Domain, problems: Sequence[Problem], completions: Sequence[list[Completion]]) -> list[ProblemResult]:
    """Reads the answers and decides which are right. Nothing is marked up: no box is no answer."""
    answers = [[domain.extract_answer(completion.text) for completion in row] for row in completions]
    votes = domain.vote_all([row[1:] for row in answers])

    def right(problem: Problem, answer: str | None) -> bool:
        return answer is not None and domain.equivalent(problem.answer, answer)

    return [
        ProblemResult(
            index=index,
            greedy=given[0],
            completion=row[0].text,
            greedy_right=right(problem, given[0]),
            answers=tuple(given[1:]),
            right=tuple(right(problem, answer) for answer in given[1:]),
            majority=vote.answer,
            majority_right=right(problem, vote.answer),
            num_truncated=sum(completion.truncated for completion in row),
        )
        for index, (problem, row, given, vote) in enumerate(zip(problems, completions, answers, votes, strict=True))
    ]


def _fingerprint(prompts: Sequence[Any], *, params: SamplingParams, **settings: Any) -> str:
    return fingerprint([json.dumps([list(prompts), asdict(params), settings], sort_keys=True, default=str)])


class _Store:
    """Completions by problem, in memory and, where there is a folder, in a file that grows by whole lines.

    A line that a kill cut in half, or that is damaged, is dropped and its problem asked again.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, identity: str):
        self.completions: dict[int, list[Completion]] = {}
        self.path = Path(folder) / "completions.jsonl" if folder is not None else None
        if self.path is None:
            return
        for row in from_main(lambda: self._read(identity), "reading the completions"):
            self.completions[row["index"]] = [Completion(**completion) for completion in row["completions"]]

    def _read(self, identity: str) -> list[dict[str, Any]]:
        """The rows that are there. Those that cannot be read are taken out of the file."""
        assert self.path is not None
        head = json.dumps({"evaluation": identity})
        if not self.path.exists():
            write_text(self.path, head + "\n")
            return []
        lines = self.path.read_text(encoding="utf-8", errors="replace").split("\n")
        if lines[0] != head:
            raise PrismError(
                f"{self.path.parent} holds the completions of another evaluation (other model, problems, prompts, "
                "sampling or seed). Choose another --output_dir, or remove it."
            )
        rows, whole = [], [head]
        for line in lines[1:]:
            try:
                row = json.loads(line)
                rows.append({"index": int(row["index"]), "completions": [dict(c) for c in row["completions"]]})
                whole.append(line)
            except (ValueError, KeyError, TypeError):
                continue  # cut in half by a kill, or damaged: the problem is asked again
        if len(whole) + 1 != len(lines) or lines[-1]:
            write_text(self.path, "\n".join(whole) + "\n")
        return rows

    def holds(self, chunk: Sequence[int]) -> bool:
        return all(index in self.completions for index in chunk)

    def add(self, rows: Sequence[tuple[int, list[Completion]]]) -> None:
        self.completions.update(rows)
        if self.path is not None and is_main():
            with one_clear_error(self.path), self.path.open("a", encoding="utf-8") as file:
                for index, completions in rows:
                    file.write(json.dumps({"index": index, "completions": [asdict(c) for c in completions]}) + "\n")
                file.flush()
                os.fsync(file.fileno())
