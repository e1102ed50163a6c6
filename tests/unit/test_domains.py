import json
from random import Random

import pytest

from prism_lab import skills
from prism_lab.domain import Lab
from prism_lab.model import build_tokenizer
from trl_prism.domains import MalformedQuestion, load_domain
from trl_prism.domains.maths import EXAMPLE_PROBLEMS, QUESTIONER_INSTRUCTION, Maths
from trl_prism.errors import PrismError


@pytest.mark.parametrize(
    ("completion", "reason"),
    [
        ("", "no complete"),
        ("What is 2 + 2?", "no complete"),
        ("<question>What is 2 +", "no complete"),
        ("<question>  </question>", "empty"),
        ("<question>?!</question>", "empty"),
        ("<question>" + "x " * 1500 + "</question>", "3000 characters|2999 characters"),
        (r"<question>What is 2 + 2? \boxed{4}</question>", "holds its own answer"),
        (f"<question>{QUESTIONER_INSTRUCTION}</question>", "empty"),
        ("<question>What is 2 plus 3? Answer: 5</question>", "own answer"),
        ("<question>What is 2 plus 3? **Answer:** 5</question>", "own answer"),
        ("<question>What is 2 plus 3? The answer is 5.</question>", "own answer"),
        (f"<question>{QUESTIONER_INSTRUCTION.split('Write the problem')[0]}</question>", "copy of the prompt"),
    ],
)
def test_malformed_questions(completion, reason):
    with pytest.raises(MalformedQuestion, match=reason):
        Maths().parse_question(completion)


def test_the_last_complete_question_counts():
    text = "<question>first?</question> or <question>What is 3 + 4?</question> and <question>cut"
    assert Maths().parse_question(text) == "What is 3 + 4?"
    assert Maths().parse_question("<question>一个三角形有几条边？</question>") == "一个三角形有几条边？"
    assert Maths().parse_question("<question>Compute 5!</question>") == "Compute 5!"
    assert Maths(prompt_format="text").parse_question(" What is 1 + 1?\n\nProblem: more") == "What is 1 + 1?"


@pytest.mark.parametrize(
    ("completion", "reason"),
    [
        ("\n\n", "empty"),
        (f" {EXAMPLE_PROBLEMS[0]}\n\n", "copy"),
        (" What is 2 + 2?\nSolution: 4.", "holds its own answer"),
        (" A train covers 150 kilometres in 2 hours and then", "cut off"),
    ],
)
def test_malformed_questions_in_plain_text(completion, reason):
    with pytest.raises(MalformedQuestion, match=reason):
        Maths(prompt_format="text").parse_question(completion)


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        (r"\boxed{4}", "4"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{1} no, \boxed{2}", "2"),
        (r"\boxed{3} and \boxed{", "3"),
        (r"\boxed{", None),
        (r"\boxed{}", None),
        ("4", None),
        ("", None),
    ],
)
def test_boxes(completion, answer):
    assert Maths().extract_answer(completion) == answer


def test_answers_that_mean_the_same():
    maths = Maths()
    assert maths.equivalent("0.5", r"\frac{1}{2}") and maths.equivalent(r"\frac{1}{2}", "0.5")
    assert not maths.equivalent("3", "4")
    [v] = maths.vote_all([["0.5", r"\frac{1}{2}", "3", None]])
    assert (v.answer, v.agreement) == ("0.5", 0.5)


def test_reference_and_held_out_from_files(data):
    maths = Maths(reference=str(data / "gsm8k_train.jsonl"), reference_column="question", max_reference_questions=50)
    assert len(maths.reference_questions()) == 50
    maths = Maths(held_out=str(data / "gsm8k_test.jsonl"), held_out_columns=["question", "answer"], max_held_out=3)
    assert [problem.answer for problem in maths.held_out_problems()] == ["18", "3", "70000"]
    maths = Maths(held_out=str(data / "math500.jsonl"), max_held_out=1)
    assert maths.held_out_problems()[0].kind == "Precalculus"


def test_a_broken_file_names_its_line(tmp_path):
    path = tmp_path / "broken.jsonl"
    path.write_text(json.dumps({"problem": "p"}) + "\n{oops\n")
    with pytest.raises(PrismError, match="line 2"):
        Maths(reference=str(path)).reference_questions()


def test_domains_by_name_and_by_path():
    assert isinstance(load_domain("maths"), Maths)
    assert isinstance(load_domain("prism_lab.domain:Lab"), Lab)
    for name, message in (("music", "import path"), ("nowhere:X", "cannot be imported"), ("json:X", "cannot be")):
        with pytest.raises(PrismError, match=message):
            load_domain(name)
    with pytest.raises(PrismError, match="domain_kwargs"):
        load_domain("maths", colour="blue")


def test_every_skill_reads_what_it_writes():
    rng = Random(0)
    tokenizer = build_tokenizer()
    for skill in skills.SKILLS:
        for _ in range(50):
            problem = skills.ask(rng, skill)
            assert skills.read(problem.question) == problem
            assert 0 <= problem.answer <= 99
            for written_out in (True, False):
                answer = skills.write_answer(problem, written_out=written_out)
                assert Lab().extract_answer(answer) == str(problem.answer)
                assert tokenizer.unk_token_id not in tokenizer(f"{problem.question} {answer}")["input_ids"]


def test_steps_are_arithmetic():
    for problem in (skills.ask(Random(i), skills.SKILLS[i % 16]) for i in range(500)):
        for left, operator, right, result in problem.steps:
            expected = {
                "+": left + right,
                "-": left - right,
                "*": left * right,
                "/": left / right if right else None,
                "%": left % right if right else None,
                "max": max(left, right),
                "gcd": next(g for g in range(max(left, right, 1), 0, -1) if left % g == 0 and right % g == 0),
            }[operator]
            assert result == expected


def test_the_lab_parses_its_own_language():
    lab = Lab()
    assert lab.parse_question(" tom has 3  apples ") == "tom has 3 apples"
    for text, reason in (("", "empty"), ("tom has apples", "no number"), ("3 = 4", "own answer"), ("3 <a>", "own")):
        with pytest.raises(MalformedQuestion, match=reason):
            lab.parse_question(text)
    assert [lab.extract_answer(t) for t in ("surely <ans> 7", "<ans> x", "7", "<ans> 1 <ans> 2", "<ans>")] == [
        "7",
        None,
        None,
        "2",
        None,
    ]
    assert lab.truth("multiply the larger of 7 and 12 by 3 and subtract 6").answer == "30"
    assert lab.truth("multiply the larger of 7 and 12 by 30 and subtract 6") is None


def test_no_held_out_problem_is_in_the_supervised_data():
    from prism_lab.warm_start import Documents

    held_out = {problem.question for seed in (1, 2) for problem in Lab(held_out_seed=seed).held_out_problems()}
    tokenizer = build_tokenizer()
    documents = Documents(tokenizer, seed=0, num_steps=100)
    seen = {tokenizer.decode(document["input_ids"]) for document in documents}
    assert len(seen) > 4000
    assert not any(text.removeprefix("<q> ").split(" <a>")[0].removesuffix(" <eos>") in held_out for text in seen)
    assert held_out and all(skills.reserved(question) for question in held_out)


def test_held_out_problems_are_balanced_and_differ_by_seed():
    problems = Lab(num_held_out=64).held_out_problems()
    assert {sum(p.kind == s.name for p in problems) for s in skills.SKILLS} == {4}
    assert problems != Lab(num_held_out=64, held_out_seed=2).held_out_problems()
    assert problems == Lab(num_held_out=64).held_out_problems()
