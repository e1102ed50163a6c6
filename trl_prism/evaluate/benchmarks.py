"""The test sets, each from a local file or the Hub, and how their rows are read."""

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trl_prism.core.extraction import last_box
from trl_prism.domains.base import Problem
from trl_prism.errors import PrismError
from trl_prism.ports.datasets import Row, read_hub
from trl_prism.ports.files import read_jsonl


logger = logging.getLogger(__name__)
# A domain's own problems go by this name.
HELD_OUT = "held_out"


@dataclass(frozen=True)
class ProblemSet:
    """Problems, and where they come from.

    Attributes:
        name (`str`): What the figures are shown under; of a file its name without the folder.
        problems (`tuple[Problem, ...]`): The problems, in the order of the source.
        source (`Mapping[str, str | None]`): `hub_id`, `config`, `split` and `revision`; or `file` and `sha256`; or
            `domain`.
    """

    name: str
    problems: tuple[Problem, ...]
    source: Mapping[str, str | None]


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A test set.

    Args:
        name (`str`): Its name on the command line; a local file is called `NAME.jsonl`.
        hub_id (`str`): Data set on the Hub.
        revision (`str`, *optional*): The commit that is read; another with `name@revision`. Without one it is the
            newest, and the results say which that was.
        read (`Callable`): One row as a problem; `None` drops the row.
        configs (`tuple[str | None, ...]`): The Hub data set's configurations, joined in this order.
        split (`str`): The Hub data set's split.
        file (`str`, *optional*): What a local file is called, where that is not `NAME`.
    """

    name: str
    hub_id: str
    read: Callable[[Row], Problem | None]
    revision: str | None = None
    configs: tuple[str | None, ...] = (None,)
    split: str = "test"
    file: str | None = None


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


def _boxed(row: Row) -> Problem:
    """The answer has a column of its own, or stands in the solution's last box."""
    answer = row["answer"] if row.get("answer") is not None else last_box(str(row["solution"]))
    if answer is None:
        raise PrismError(f"A row has no answer and no box in its solution: {str(row)[:200]}")
    return Problem(_first(row, "problem", "question"), str(answer))


def _mawps(row: Row) -> Problem:
    answer = row["target"] if row.get("target") is not None else row["answer"]
    answer = answer[0] if isinstance(answer, list) else answer
    return Problem(_first(row, "input", "question"), _number(str(answer).rpartition("####")[2].strip()))


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
            name="math500",
            hub_id="HuggingFaceH4/MATH-500",
            revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
            read=_plain(question=("problem",), answer=("answer",)),
        ),
        Benchmark(
            name="gsm8k",
            hub_id="openai/gsm8k",
            revision="740312add88f781978c0658806c59bc2815b9866",
            configs=("main",),
            read=_gsm8k,
            file="gsm8k_test",
        ),
        Benchmark(
            name="amc23",
            hub_id="math-ai/amc23",
            revision="80815d37005feb82cd7f8fbc6901d5d3eff43057",
            read=_plain(question=("problem", "question"), answer=("answer",)),
        ),
        Benchmark(
            name="aime24",
            hub_id="math-ai/aime24",
            revision="83a7f387baaa524a8bda0022eac0541582297103",
            read=_boxed,
        ),
        Benchmark(
            name="aime25",
            hub_id="math-ai/aime25",
            revision="563bb8404243c5f09de6ec262f2db674fe5bce9b",
            read=_plain(question=("problem",), answer=("expected_answer", "answer")),
        ),
        Benchmark(
            name="minerva_math",
            hub_id="math-ai/minervamath",
            revision="ee46ddc498933b1977577953250ca5c66be64f96",
            read=_boxed,
        ),
        Benchmark(
            name="olympiadbench",
            hub_id="math-ai/olympiadbench",
            revision="4faaf1e6ec17d11a4218a9bf4c049ecaf954dd84",
            read=_olympiad,
        ),
        Benchmark(
            name="gaokao2023en",
            hub_id="MARIO-Math-Reasoning/Gaokao2023-Math-En",
            split="train",
            read=_plain(question=("question",), answer=("answer",)),
        ),
        # All 1,000 problems, as is usual: the Hub's copy splits them into 700 and 300.
        Benchmark(
            name="svamp",
            hub_id="ChilleD/SVAMP",
            revision="5e0bf1e5e7c0e9c4bc39180d224f41f3f801b7ef",
            split="train+test",
            read=_svamp,
        ),
        # The Hub's test split has 355 problems of all parts; the usual local file is the part AddSub with 395.
        Benchmark(name="mawps", hub_id="garrethlee/MAWPS", read=_mawps, file="mawps_addsub"),
        Benchmark(
            name="mmlu_maths",
            hub_id="cais/mmlu",
            revision="c30699e8356da336a370243923dbaf21066bb9fe",
            configs=MMLU_SUBJECTS,
            read=_mmlu,
        ),
    )
}


def load_benchmark(
    name: str,
    *,
    data_dir: str | None = None,
    folder_field: str = "data_dir",
    question_column: str = "question",
    answer_column: str = "answer",
    kind_column: str | None = None,
    level_column: str | None = None,
    max_problems: int | None = None,
) -> ProblemSet:
    """The problems of a known test set, or of any JSONL file or Hub data set by naming its columns.

    Args:
        name (`str`): One of `BENCHMARKS`, with `@revision` to pin the Hub's; the path of a JSONL file; or a Hub id
            `owner/name[:config][/split][@revision]`.
        data_dir (`str`, *optional*): Folder with `NAME.jsonl`; what it holds is not asked of the Hub.
        folder_field (`str`, *optional*): What errors call the setting that names this folder.
        question_column, answer_column, kind_column, level_column (`str`): Columns of a file or data set of your own.
        max_problems (`int`, *optional*): Only the first so many.

    Returns:
        [`ProblemSet`]

    Raises:
        PrismError: if there is no such set, or its rows cannot be read.
    """
    base, _, revision = name.partition("@")
    known = BENCHMARKS.get(base)
    path = Path(name)
    if data_dir is not None and not Path(data_dir).is_dir():
        raise PrismError(f"`{folder_field}` is {data_dir}, which is no folder.")
    rows: Sequence[Row]
    source: dict[str, str | None]
    if known is not None and data_dir is not None:
        path = Path(data_dir) / f"{known.file or known.name}.jsonl"
    if path.suffix == ".jsonl" and path.is_file():
        title, rows = known.name if known else path.stem, read_jsonl(path)
        # No folder: figures are shared, and paths of this machine are nobody's business.
        source = {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    elif known is not None:
        pinned = revision or known.revision
        title, (rows, source) = known.name, read_hub(known.hub_id, known.configs, known.split, pinned)
    elif "/" in base and not path.suffix:
        owner, repository, *split = base.split("/", 2)
        repository, _, config = repository.partition(":")
        hub_id = f"{owner}/{repository}"
        title, (rows, source) = (
            hub_id,
            read_hub(hub_id, (config or None,), split[0] if split else "test", revision or None),
        )
    else:
        raise PrismError(
            f"There is no benchmark {name!r}. Known are {', '.join(BENCHMARKS)}; a path of a JSONL file or a Hub id "
            "owner/name works as well."
        )
    own = known.read if known else _own_reader(question_column, answer_column, kind_column, level_column)
    read = []
    for number, row in enumerate(rows, start=1):
        try:
            read.append(own(row))
        except (KeyError, IndexError, TypeError, ValueError) as error:  # PrismError is a ValueError
            reason = error if isinstance(error, PrismError) else f"{type(error).__name__}: {error}"
            raise PrismError(f"{name}, row {number}, cannot be read: {reason}") from error
    problems = [p for p in read if p is not None and p.question.strip() and p.answer.strip()]
    if len(problems) < len(read):
        # Nothing could be right there, and the figures would be too low.
        logger.warning(
            "%s: %d of %d problems have no question or no answer and are left out.",
            name,
            len(read) - len(problems),
            len(read),
        )
    if not problems:
        raise PrismError(f"The benchmark {name!r} holds no problems.")
    return ProblemSet(title, tuple(problems[:max_problems]), source)


def check_names(problem_sets: Sequence[ProblemSet]) -> None:
    """Raises [`PrismError`] where two sets go by one name."""
    counts = Counter(problem_set.name for problem_set in problem_sets)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise PrismError(f"Two benchmarks are called {twice[0]!r}; their figures would share a folder.")


def _own_reader(question: str, answer: str, kind: str | None, level: str | None) -> Callable[[Row], Problem | None]:
    def read(row: Row) -> Problem | None:
        missing = [column for column in (question, answer, kind, level) if column and column not in row]
        if missing:
            raise PrismError(
                f"there is no column {missing[0]!r}; there are {', '.join(row)}. Name it with --*_column."
            )
        if row[question] is None or row[answer] is None:
            return None
        kind_value = str(row[kind]) if kind and row[kind] is not None else None
        level_value = str(row[level]) if level and row[level] is not None else None
        return Problem(str(row[question]), _number(str(row[answer])), kind_value, level_value)

    return read
