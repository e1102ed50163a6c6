"""Evaluation of real models, its figures by hand, and that nothing is asked twice."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from prism_lab.domain import Lab
from trl_prism.domains.base import Problem
from trl_prism.domains.maths import Maths
from trl_prism.errors import PrismError
from trl_prism.evaluate import BENCHMARKS, ProblemSet, evaluate, load_benchmark, model_fingerprint, summarise
from trl_prism.evaluate.command import EvaluateConfig, output_folder
from trl_prism.evaluate.command import run as run_evaluation
from trl_prism.evaluate.results import model_index
from trl_prism.ports.models import load_frozen
from trl_prism.ports.samplers import Completion, SamplingParams, TransformersSampler


PARAMS = SamplingParams(max_tokens=22)


class Scripted:
    """Gives fixed completions, so that every figure can be worked out by hand."""

    def __init__(self, greedy, sampled):
        self.greedy, self.sampled = greedy, sampled
        self.asked = []

    def sample(self, prompts, *, num_samples, params, seed, on_progress=None):
        self.asked += list(prompts)
        source = self.greedy if params.temperature == 0 else self.sampled
        return [[Completion(*c) for c in source[prompt.split()[-1]]] for prompt in prompts]


class Plain(Maths):
    def solver_prompt(self, question):
        return question


PROBLEMS = [
    Problem("a", "1/2", "fractions", "1"),
    Problem("b", "7", "numbers", "2"),
    Problem("c", "8", "numbers", "2"),
]
GREEDY = {"a": [(r"\boxed{0.5}", False)], "b": [(r"\boxed{6}", False)], "c": [("cut", True)]}
SAMPLED = {
    "a": [(r"\boxed{\frac12}", False), (r"\boxed{0.50}", False), (r"\boxed{2}", False), ("", True)],
    "b": [(r"\boxed{6}", False), (r"\boxed{6}", False), (r"\boxed{7}", False), (r"\boxed{7.0}", False)],
    "c": [("no box", False)] * 4,
}


@pytest.fixture
def scripted(tokenizer):
    def run(folder=None, sampler=None, problems=PROBLEMS):
        sampler = sampler or Scripted(GREEDY, SAMPLED)
        results = evaluate(
            sampler, Plain(), problems, num_samples=4, params=SamplingParams(max_tokens=9), seed=0,
            tokenizer=tokenizer, batch_size=4, folder=folder,
        )  # fmt: skip
        return sampler, results

    return run


def test_figures_by_hand(scripted):
    _, results = scripted()
    assert [r.greedy_right for r in results] == [True, False, False]
    assert [sum(r.right) for r in results] == [2, 2, 0]
    # b: 6 and 7 have two votes each; of equals the first spelling in sorted order wins
    assert [r.majority for r in results] == ["0.50", "6", None]
    assert [r.majority_right for r in results] == [True, False, False]
    s = summarise(ProblemSet("hand", tuple(PROBLEMS), {}), results)
    assert s.scores["accuracy"].value == pytest.approx(1 / 3)
    assert s.scores["mean@4"].value == pytest.approx((0.5 + 0.5 + 0) / 3)
    assert s.scores["pass@4"].value == pytest.approx(2 / 3)
    assert s.scores["pass@2"].value == pytest.approx((5 / 6 + 5 / 6 + 0) / 3)
    assert s.scores["maj@4"].value == pytest.approx(1 / 3)
    assert s.frac_unanswered == pytest.approx(6 / 15)
    assert s.frac_truncated == pytest.approx(2 / 15)
    assert s.per_kind["numbers"]["value"] == 0 and s.per_kind["numbers"]["num_problems"] == 2
    assert s.per_level["1"]["value"] == 1
    index = model_index("m", [s])["model-index"][0]
    assert index["results"][0]["metrics"][0]["value"] == pytest.approx(0.3333)


def test_what_is_there_is_not_asked_again(scripted, tmp_path):
    _, first = scripted(tmp_path)
    sampler, second = scripted(tmp_path)
    assert sampler.asked == [] and second == first
    # a kill in the middle of a line, and one that lost a whole line
    path = tmp_path / "completions.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:20])
    sampler, third = scripted(tmp_path)
    assert third == first and len(sampler.asked) == 2
    # a line damaged in the middle
    path.write_text("\n".join([lines[0], lines[1][:-9], *lines[2:]]) + "\n")
    sampler, fourth = scripted(tmp_path)
    assert fourth == first and len(sampler.asked) == 2 and scripted(tmp_path)[0].asked == []
    with pytest.raises(PrismError, match="another evaluation"):
        scripted(tmp_path, problems=PROBLEMS[:2])


def test_the_completions_of_another_model_are_not_taken_for_its_own(base, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(base, copy)
    assert model_fingerprint(str(copy)) == model_fingerprint(str(base))
    assert model_fingerprint(str(copy), dtype="bfloat16") != model_fingerprint(str(copy), dtype="auto")
    weights = copy / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert model_fingerprint(str(copy)) != model_fingerprint(str(base))


@pytest.fixture(scope="module")
def lab_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "lab.jsonl"
    rows = [
        {"question": p.question, "answer": p.answer, "skill": p.kind} for p in Lab(num_held_out=32).held_out_problems()
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def command(lab_file, base, output_dir, *args, launcher=()):
    return subprocess.run(
        [
            *(launcher or (sys.executable, "-m", "trl_prism.cli")),
            *("evaluate", "--model", base, "--domain", "prism_lab.domain:Lab", "--benchmarks", str(lab_file)),
            *("--max_tokens", "22", "--kind_column", "skill", "--num_samples", "4", "--batch_size", "32"),
            *("--output_dir", str(output_dir), *args),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "ACCELERATE_USE_CPU": "true"},
        check=False,
    )


def test_the_labs_solver_as_a_command(lab_file, base, tmp_path):
    done = command(lab_file, base, tmp_path / "one")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "maj@4" in done.stdout and "Traceback" not in done.stderr
    figures = json.loads((tmp_path / "one" / "lab" / "results.json").read_text())
    assert 0 < figures["scores"]["accuracy"]["value"] < 1
    assert len(figures["per_kind"]) == 16
    wrong = (tmp_path / "one" / "lab" / "wrong.jsonl").read_text().splitlines()
    assert len(wrong) == round(32 * (1 - figures["scores"]["accuracy"]["value"]))
    shared = (tmp_path / "one" / "model_index.yaml").read_text()
    assert yaml.safe_load(shared)["model-index"] and str(tmp_path) not in shared


def test_the_domains_own_problems(lab_file, base, tmp_path):
    done = command(lab_file, base, tmp_path, "--benchmarks", "held_out", "--max_problems", "16", "--num_samples", "0")
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads((tmp_path / "held_out" / "results.json").read_text())["num_problems"] == 16
    done = command(lab_file, base, tmp_path, "--benchmarks", "held_out", "--domain", "maths")
    assert done.returncode == 2 and "no held-out problems" in done.stderr


def test_two_models_need_not_share_a_folder(lab_file, base, tmp_path):
    """Without `--output_dir` each has its own; with it the second is refused."""
    other = tmp_path / "other"
    shutil.copytree(base, other)
    args = ("--num_samples", "0", "--max_problems", "4")
    done = command(lab_file, base, tmp_path / "out", *args)
    assert done.returncode == 0, done.stderr[-2000:]
    weights = load_file(other / "model.safetensors")
    save_file({name: value * 1.01 for name, value in weights.items()}, other / "model.safetensors", {"format": "pt"})
    done = command(lab_file, other, tmp_path / "out", *args)
    assert done.returncode == 2 and "another evaluation" in done.stderr and "Traceback" not in done.stderr
    config = EvaluateConfig(model=str(other), benchmarks=str(lab_file))
    assert output_folder(config) != output_folder(EvaluateConfig(model=str(base)))


@pytest.mark.parametrize(
    "row",
    [
        {"id": 60, "problem": "p", "solution": r"thus \boxed{204}", "url": ""},
        {"problem": "p", "answer": "204", "solution": "long"},
        {"question": "p", "answer": 204},
    ],
)
def test_rows_with_an_answer_or_a_boxed_solution(row):
    assert BENCHMARKS["aime24"].read(row) == Problem("p", "204")


def test_rows_of_mawps():
    for row in (
        {"input": "q", "target": 43.0},
        {"question": "q", "answer": "27 + 16 #### 43"},
        {"question": "q", "answer": ["43.0"]},
    ):
        assert BENCHMARKS["mawps"].read(row) == Problem("q", "43")


def test_what_figures_depend_on_stands_beside_them(lab_file, base, tmp_path):
    done = command(lab_file, base, tmp_path / "out", "--max_problems", "4")
    assert done.returncode == 0, done.stderr[-2000:]
    text = (tmp_path / "out" / "lab" / "results.json").read_text()
    figures = json.loads(text)
    assert figures["source"] == {"file": "lab.jsonl", "sha256": hashlib.sha256(lab_file.read_bytes()).hexdigest()}
    assert figures["settings"]["model"] == Path(base).name and figures["settings"]["max_tokens"] == 22
    assert str(Path(base).parent) not in text
    assert list(figures["scores"]) == ["accuracy", "mean@4", "pass@2", "pass@4", "maj@4"]
    wrong = (tmp_path / "out" / "lab" / "wrong.jsonl").read_text().splitlines()
    assert all(json.loads(line)["completion"] for line in wrong)


def test_two_ranks_give_the_same_numbers_as_one(lab_file, base, tmp_path):
    torchrun = (str(Path(sys.executable).parent / "torchrun"), "--nproc_per_node", "2", "-m", "trl_prism.cli")
    probe = subprocess.run(
        [*torchrun[:-2], "--no-python", sys.executable, "-c",
         "import os; from accelerate import PartialState as P; os.write(1, b'%d\\n' % P(cpu=True).num_processes)"],
        capture_output=True, text=True, env={**os.environ, "ACCELERATE_USE_CPU": "true"}, timeout=120, check=False,
    )  # fmt: skip
    assert probe.stdout.split() == ["2", "2"], "the launch pretends: not two processes"
    one = command(lab_file, base, tmp_path / "one")
    two = command(lab_file, base, tmp_path / "two", launcher=torchrun)
    assert one.returncode == two.returncode == 0, two.stderr[-2000:]
    for name in ("results.json", "wrong.jsonl"):
        assert (tmp_path / "one" / "lab" / name).read_text() == (tmp_path / "two" / "lab" / name).read_text()
    rows = [json.loads(line) for line in (tmp_path / "two" / "lab" / "completions.jsonl").read_text().splitlines()[1:]]
    assert sorted(row["index"] for row in rows) == list(range(32))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[1, 2]\n", "line 1, is no object"),
        (b"\xff\xfe\n", "cannot be read as UTF-8"),
        (b'{"question": "q"}\n', "row 1, cannot be read: there is no column 'answer'"),
        (b'{"question": null, "answer": "1"}\n', "holds no problems"),
        (b'{"question": "q", "answer": null}\n', "holds no problems"),
    ],
)
def test_files_that_cannot_be_read(content, message, tmp_path):
    (tmp_path / "own.jsonl").write_bytes(content)
    with pytest.raises(PrismError, match=message):
        load_benchmark(str(tmp_path / "own.jsonl"))


def test_known_sets_with_other_columns_and_a_byte_order_mark(tmp_path):
    (tmp_path / "olympiadbench.jsonl").write_text('{"question": "q", "answer": "1"}\n')
    with pytest.raises(PrismError, match=r"row 1, cannot be read: KeyError: 'final_answer'"):
        load_benchmark("olympiadbench", data_dir=str(tmp_path))
    (tmp_path / "own.jsonl").write_bytes(b'\xef\xbb\xbf{"question": "q", "answer": "1"}\n')
    assert load_benchmark(str(tmp_path / "own.jsonl")).problems == (Problem("q", "1"),)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--modle", "x"], "Did you mean `--model`"),
        (["--model", "no/such/folder"], "The tokenizer 'no/such/folder' cannot be loaded"),
        (["--answer_column", "solution"], "there is no column 'solution'"),
    ],
)
def test_one_clear_error(lab_file, base, tmp_path, args, message):
    done = command(lab_file, base, tmp_path, *args)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_tokens": 0}, "`max_tokens` is 0; it must be at least 1"),
        ({"num_samples": -1}, "`num_samples` is -1; it must be at least 0"),
        ({"top_p": 2.0}, "`top_p` is 2.0; it must lie between"),
        ({"temperature": 0.0}, "all samples would be the same"),
        ({"dtype": "float99"}, "`dtype` is 'float99'"),
        ({"domain_kwargs": "{foo: ["}, r"`domain_kwargs` is '{foo: \[', which is no YAML"),
        ({"benchmarks": ","}, "`benchmarks` names none"),
        ({"benchmarks": "held_out,held_out"}, "Two benchmarks are called 'held_out'"),
        ({"benchmarks": "maths500"}, "There is no benchmark 'maths500'. Known are math500"),
        ({"output_dir": "/dev/null/folder"}, "cannot be written"),
        ({"data_dir": "no-such-folder", "benchmarks": "math500"}, "which is no folder"),
        ({"level_column": "grade"}, "no column 'grade'"),
        ({"engine": "llama"}, "must be 'transformers' or 'vllm'"),
        ({"engine": "vllm"}, "pip install 'trl-prism"),
        ({"model": "."}, r"The tokenizer '\.' cannot be loaded"),
    ],
)
def test_what_cannot_work_is_refused(lab_file, base, tmp_path, changes, message):
    settings = {"model": base, "benchmarks": str(lab_file), "domain": "prism_lab.domain:Lab", "max_tokens": 5}
    with pytest.raises(PrismError, match=message):
        run_evaluation(EvaluateConfig(**{**settings, "output_dir": str(tmp_path / "out"), **changes}))


SIZES = {
    "math500": 500, "gsm8k": 1319, "amc23": 40, "aime24": 30, "aime25": 30, "minerva_math": 272,
    "olympiadbench": 675, "gaokao2023en": 383, "svamp": 1000, "mawps": 395,
}  # fmt: skip


@pytest.mark.parametrize("name", SIZES)
def test_every_real_set_is_read_whole(data, name):
    problems = load_benchmark(name, data_dir=str(data)).problems
    assert len(problems) == SIZES[name]
    assert all(problem.question.strip() and problem.answer.strip() for problem in problems)
    maths = Maths()
    # Not the very same text, which needs no reading: as a model would box it, with other spaces.
    respelled = {problem.answer: f" {problem.answer.rstrip('.')}\\, ." for problem in problems}
    assert [answer for answer, other in respelled.items() if not maths.equivalent(answer, other)] == []


def test_problems_without_an_answer_are_left_out_and_said(data, caplog):
    load_benchmark("gaokao2023en", data_dir=str(data))
    assert "2 of 385 problems have no question or no answer" in caplog.text


def test_kinds_and_levels_where_the_data_have_them(data):
    math500 = load_benchmark("math500", data_dir=str(data)).problems
    assert len({problem.kind for problem in math500}) == 7 and len({problem.level for problem in math500}) == 5
    assert {p.answer for p in load_benchmark("amc23", data_dir=str(data)).problems} >= {"27"}
    assert load_benchmark("svamp", data_dir=str(data)).problems[0].question.startswith("There are 87 oranges")


def test_multiple_choice_rows():
    row = {"question": "2 + 2?", "choices": ["3", "4", "5", "6"], "answer": 1, "subject": "elementary_mathematics"}
    problem = BENCHMARKS["mmlu_maths"].read(row)
    assert problem.answer == "B" and "(B) 4" in problem.question
    assert Maths().equivalent(problem.answer, r"\text{(B)}") and not Maths().equivalent(problem.answer, "C")


def test_a_real_language_model_end_to_end(smollm2, data):
    tokenizer = AutoTokenizer.from_pretrained(smollm2, padding_side="left")
    domain = Maths(prompt_format="text")
    problem_set = load_benchmark("mawps", data_dir=str(data), max_problems=20)
    problems = problem_set.problems
    results = evaluate(
        TransformersSampler(load_frozen(smollm2), tokenizer, batch_size=20),
        domain,
        problems,
        num_samples=0,
        params=SamplingParams(max_tokens=40, stop=tuple(domain.solver_stop)),
        seed=0,
        tokenizer=tokenizer,
        batch_size=20,
    )
    summary = summarise(problem_set, results)
    assert summary.num_problems == 20 and set(summary.scores) == {"accuracy"}
    # It can hardly add, but it boxes what it finds.
    assert 0 <= summary.scores["accuracy"].value < 1 and summary.frac_unanswered < 0.9
    assert sum(result.greedy is not None and result.greedy.strip("$").isdigit() for result in results) >= 3


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("owner/set", ("owner/set", (None,), "test", None)),
        ("owner/set:main/train@abc", ("owner/set", ("main",), "train", "abc")),
        ("owner/set/validation", ("owner/set", (None,), "validation", None)),
    ],
)
def test_the_parts_of_a_hub_id(name, asked, monkeypatch):
    calls = []
    monkeypatch.setattr(
        "trl_prism.evaluate.benchmarks.read_hub",
        lambda *args: calls.append(args) or ([{"question": "q", "answer": "1"}], {}),
    )
    assert load_benchmark(name).problems == (Problem("q", "1"),)
    assert calls == [asked]
