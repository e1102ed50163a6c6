"""The test sets, each from a local file or the Hub, and how their rows are read."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trl_prism.core.extraction import last_box
from trl_prism.domains.base import Problem
from trl_prism.errors import PrismError
from trl_prism.ports.files import read_jsonl


Row = Mapping[str, Any]
logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A test set.

    Args:
        name (`str`): Its name on the command line; a local file is called `NAME.jsonl`.
        hub_id (`str`): Data set on the Hub. Pin its revision as `name@revision`.
        configs (`tuple[str | None, ...]`): The Hub data set's configurations, joined in this order.
        split (`str`): The Hub data set's split.
        read (`Callable`): One row as a problem; `None` drops the row.
    """

    name: str
    hub_id: str
    read: Callable[[Row], Problem | None]
    configs: tuple[str | None, ...] = (None,)
    split: str = "test"


def _first(row: Row, *names: str) -> str:
    """The value of the first column there is: sets are spelled differently at different places."""
    for name in names:
        if row.get(name) is not None:
            return str(row[name])
    raise PrismError(f"A row has none of the columns {', '.join(names)}; it has {', '.join(row)}.")


def _plain(*, question: tuple[str, ...], answer: tuple[str, ...], kind: str = "subject") -> Callable[[Row], Problem]:
    def read(row: Row) -> Problem:
        level = row.get("level")
        return Problem(
            _first(row, *question),
            _number(_first(row, *answer)),
            str(row[kind]) if row.get(kind) is not None else None,
            str(level) if level is not None else None,
        )

    return read


def _number(text: str) -> str:
    """27.0 as 27: some files keep whole answers as floating-point numbers."""
    return text.removesuffix(".0") if text.removesuffix(".0").lstrip("-").isdigit() else text


def _gsm8k(row: Row) -> Problem:
    return Problem(str(row["question"]), str(row["answer"]).rpartition("####")[2].strip())


def _minerva(row: Row) -> Problem:
    answer = last_box(str(row["solution"])) if "solution" in row else str(row["answer"])
    if answer is None:
        raise PrismError("A row of minerva_math has no box in its solution.")
    return Problem(_first(row, "problem", "question"), answer)


def _olympiad(row: Row) -> Problem:
    # Several answers belong together: all of them are asked for.
    answers = row["final_answer"]
    answer = ", ".join(map(str, answers)) if isinstance(answers, list) else str(answers)
    context = str(row["context"]) + "\n" if row.get("context") else ""
    subfield = row.get("subfield")
    return Problem(context + str(row["question"]), answer, str(subfield) if subfield else None)


def _svamp(row: Row) -> Problem:
    kind = str(row["Type"]) if row.get("Type") else None
    return Problem(f"{row['Body']} {row['Question']}".strip(), _number(str(row["Answer"])), kind)


def _mmlu(row: Row) -> Problem:
    choices = "\n".join(f"({letter}) {choice}" for letter, choice in zip("ABCD", row["choices"], strict=True))
    question = f"{row['question']}\n{choices}\nAnswer with the letter of the right choice."
    return Problem(question, "ABCD"[int(row["answer"])], str(row["subject"]) if row.get("subject") else None)


MMLU_SUBJECTS = (
    "abstract_algebra",
    "college_mathematics",
    "elementary_mathematics",
    "high_school_mathematics",
    "high_school_statistics",
)

BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            name="math500", hub_id="HuggingFaceH4/MATH-500", read=_plain(question=("problem",), answer=("answer",))
        ),
        Benchmark(name="gsm8k", hub_id="openai/gsm8k", configs=("main",), read=_gsm8k),
        Benchmark(
            name="amc23", hub_id="math-ai/amc23", read=_plain(question=("problem", "question"), answer=("answer",))
        ),
        Benchmark(name="aime24", hub_id="math-ai/aime24", read=_plain(question=("problem",), answer=("answer",))),
        Benchmark(
            name="aime25",
            hub_id="math-ai/aime25",
            read=_plain(question=("problem",), answer=("expected_answer", "answer")),
        ),
        Benchmark(name="minerva_math", hub_id="math-ai/minervamath", read=_minerva),
        Benchmark(name="olympiadbench", hub_id="math-ai/olympiadbench", read=_olympiad),
        Benchmark(
            name="gaokao2023en",
            hub_id="MARIO-Math-Reasoning/Gaokao2023-Math-En",
            split="train",
            read=_plain(question=("question",), answer=("answer",)),
        ),
        Benchmark(name="svamp", hub_id="ChilleD/SVAMP", read=_svamp),
        Benchmark(
            name="mawps_addsub",
            hub_id="garrethlee/MAWPS",
            read=_plain(question=("input", "question"), answer=("target", "answer")),
        ),
        Benchmark(name="mmlu_maths", hub_id="cais/mmlu", configs=MMLU_SUBJECTS, read=_mmlu),
    )
}
# Local files that go by another name.
_FILES = {"gsm8k": "gsm8k_test"}


def load_benchmark(
    name: str,
    *,
    data_dir: str | None = None,
    question_column: str = "question",
    answer_column: str = "answer",
    kind_column: str | None = None,
    level_column: str | None = None,
) -> list[Problem]:
    """The problems of a known test set, or of any JSONL file or Hub data set by naming its columns.

    Args:
        name (`str`): One of `BENCHMARKS`, with `@revision` to pin the Hub's; the path of a JSONL file; or a Hub id
            `owner/name[:config][/split][@revision]`.
        data_dir (`str`, *optional*): Folder with `NAME.jsonl`; what it holds is not asked of the Hub.
        question_column, answer_column, kind_column, level_column (`str`): Columns of a file or data set of your own.

    Raises:
        PrismError: if there is no such set, or its rows cannot be read.
    """
    base, _, revision = name.partition("@")
    known = BENCHMARKS.get(base)
    path = Path(name)
    if known is not None and data_dir is not None:
        path = Path(data_dir) / f"{_FILES.get(base, base)}.jsonl"
    if path.suffix == ".jsonl" and path.is_file():
        rows: Any = read_jsonl(path)
    elif known is not None:
        rows = _from_hub(known.hub_id, known.configs, known.split, revision or None)
    elif "/" in base and not path.suffix:
        owner, title, *split = base.split("/", 2)
        title, _, config = title.partition(":")
        rows = _from_hub(f"{owner}/{title}", (config or None,), split[0] if split else "test", revision or None)
    else:
        raise PrismError(
            f"There is no benchmark {name!r}. Known are {', '.join(BENCHMARKS)}; a path of a JSONL file or a Hub id "
            "owner/name works as well."
        )
    own = known.read if known else _own_reader(question_column, answer_column, kind_column, level_column)
    read = [own(row) for row in rows]
    problems = [problem for problem in read if problem is not None and problem.answer.strip()]
    if len(problems) < len(read):
        # Nothing could be right there, and the figures would be too low.
        logger.warning(
            "%s: %d of %d problems have no answer and are left out.", name, len(read) - len(problems), len(read)
        )
    if not problems:
        raise PrismError(f"The benchmark {name!r} holds no problems.")
    return problems


def _own_reader(question: str, answer: str, kind: str | None, level: str | None) -> Callable[[Row], Problem | None]:
    def read(row: Row) -> Problem:
        missing = [column for column in (question, answer) if column not in row]
        if missing:
            raise PrismError(
                f"There is no column {missing[0]!r}; there are {', '.join(row)}. Name it with --*_column."
            )
        kind_value = str(row[kind]) if kind and row.get(kind) is not None else None
        level_value = str(row[level]) if level and row.get(level) is not None else None
        return Problem(str(row[question]), _number(str(row[answer])), kind_value, level_value)

    return read


def _from_hub(hub_id: str, configs: tuple[str | None, ...], split: str, revision: str | None) -> list[Row]:
    from datasets import load_dataset

    rows: list[Row] = []
    for config in configs:
        rows += list(load_dataset(hub_id, config, split=split, revision=revision))
    return rows
