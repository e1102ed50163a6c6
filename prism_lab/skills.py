"""The sixteen skills of the lab: short three-step word problems whose answers a program knows.

A skill is a kind of question. It has one or two phrasings, four random numbers and a computation in three steps,
`((a op b) op c) op d`. All numbers, the intermediate ones included, lie in 0 to 99, and each is one token of the
lab's vocabulary.

What gives self-play room (and coverage its meaning) is how answers are written in the supervised data. Every answer in
it is right, but most are given at once, which a tiny model learns badly, and the rest are written out step by step,
which it learns well. Which way an answer goes is announced by its first word, and **each skill has its own two
opening words**: a word of its own opens a written-out answer, another one an immediate answer. So the better way of
solving has to be found skill by skill, and a curriculum of one kind of question teaches little about the others.

What gives the Questioner something to do is how often questions are asked: skills are sorted by frequency, and by
Zipf's law the first four make up two thirds of all questions. Those four the base model knows, since its data show
them written out; of the other twelve it knows more than it says. So what it asks by itself teaches it little.

The training never reads this module's truth: it serves to write the supervised data of the warm start, and to measure.
"""

import math
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random


MAX_NUMBER = 99
NUM_KNOWN = 4
ZIPF_EXPONENT = 1.2
Step = tuple[int, str, int, int]  # left, operator, right, result


@dataclass(frozen=True, kw_only=True)
class Skill:
    """One kind of question.

    Args:
        name (`str`): Unique name.
        phrasings (`tuple[str, ...]`): Texts with the fields `{a}`, `{b}`, `{c}` and `{d}`.
        ranges (`tuple[tuple[int, int], ...]`): Inclusive range of each number when the lab itself asks.
        operators (`tuple[str, ...]`): The operators of the three steps, applied from left to right.
        written_opener, direct_opener (`str`): The first word of an answer that is written out, or given at once.
    """

    name: str
    phrasings: tuple[str, ...]
    ranges: tuple[tuple[int, int], ...]
    operators: tuple[str, ...]
    written_opener: str
    direct_opener: str

    def steps(self, a: int, b: int, c: int, d: int) -> tuple[Step, ...]:
        """The three steps. Raises `ValueError` or `ZeroDivisionError` where one has no result within 0 to 99."""
        steps: list[Step] = []
        for operator, right in zip(self.operators, (b, c, d), strict=True):
            left = steps[-1][-1] if steps else a
            steps.append((left, operator, right, _apply(left, operator, right)))
        return tuple(steps)


@dataclass(frozen=True)
class Problem:
    """A question with what only the measuring side may know: its skill, steps and answer."""

    question: str
    skill: Skill
    steps: tuple[Step, ...]

    @property
    def answer(self) -> int:
        return self.steps[-1][-1]


def _apply(left: int, operator: str, right: int) -> int:
    """The result of one step. Division must come out even, and nothing may leave 0 to 99."""
    if operator == "/":
        if left % right:
            raise ValueError(f"{left} / {right} is not a whole number")
        result = left // right
    else:
        result = {
            "+": lambda: left + right,
            "-": lambda: left - right,
            "*": lambda: left * right,
            "%": lambda: left % right,
            "gcd": lambda: math.gcd(left, right),
            "max": lambda: max(left, right),
        }[operator]()
    if not 0 <= result <= MAX_NUMBER:
        raise ValueError(f"{left} {operator} {right} = {result} lies outside 0 to {MAX_NUMBER}")
    return result


SKILLS: tuple[Skill, ...] = tuple(
    Skill(
        name=name,
        written_opener=openers[0],
        direct_opener=openers[1],
        phrasings=phrasings,
        ranges=ranges,
        operators=operators,
    )
    for name, openers, phrasings, ranges, operators in (
        (
            "apples",
            ("counting", "clearly"),
            ("tom has {a} apples and buys {b} more then eats {c} and finds {d} how many apples has tom",),
            ((10, 30), (2, 15), (2, 15), (2, 15)),
            ("+", "-", "+"),
        ),
        (
            "boxes",
            ("packing", "surely"),
            (
                "there are {a} boxes with {b} pens each and {c} loose pens but {d} are dry how many pens write",
                "{a} boxes hold {b} pens each and {c} pens lie loose count them without the {d} dry ones",
            ),
            ((2, 8), (2, 8), (2, 15), (2, 12)),
            ("*", "+", "-"),
        ),
        (
            "share",
            ("sharing", "plainly"),
            ("{a} red sweets and {b} green sweets are shared by {c} children who own {d} each what has each child",),
            ((5, 30), (5, 15), (2, 8), (2, 15)),
            ("+", "/", "+"),
        ),
        (
            "left_over",
            ("dealing", "simply"),
            ("{a} cards and {b} cards are dealt to {c} players what do the left over cards cost at {d} coins",),
            ((10, 30), (5, 15), (3, 9), (2, 8)),
            ("+", "%", "*"),
        ),
        (
            "pond",
            ("mowing", "quickly"),
            ("a garden of {a} by {b} squares has a pond of {c} squares and {d} equal lawns what area has a lawn",),
            ((3, 9), (3, 9), (2, 15), (2, 6)),
            ("*", "-", "/"),
        ),
        (
            "tickets",
            ("paying", "obviously"),
            (
                "a guest buys {a} tickets at {b} coins and {c} maps at one coin "
                "and pays in bags of {d} how many coins stay loose",
            ),
            ((2, 8), (2, 8), (2, 15), (2, 9)),
            ("*", "+", "%"),
        ),
        (
            "sequence",
            ("stepping", "easily"),
            ("a sequence grows by {b} for {a} steps from {c} what remains when its term is divided by {d}",),
            ((2, 9), (2, 8), (2, 15), (3, 9)),
            ("*", "+", "%"),
        ),
        (
            "linear",
            ("solving", "namely"),
            ("solve {c} x plus {b} equals {a} and give {d} times x", "find {d} x if {c} x with {b} makes {a}"),
            ((15, 60), (2, 15), (2, 8), (2, 6)),
            ("-", "/", "*"),
        ),
        (
            "divisor",
            ("dividing", "truly"),
            ("add {c} to the greatest common divisor of {a} and {b} then take it {d} times",),
            ((4, 30), (4, 30), (2, 12), (2, 5)),
            ("gcd", "+", "*"),
        ),
        (
            "larger",
            ("comparing", "evidently"),
            ("multiply the larger of {a} and {b} by {c} and subtract {d}",),
            ((2, 20), (2, 20), (2, 5), (2, 15)),
            ("max", "*", "-"),
        ),
        (
            "workers",
            ("toiling", "certainly"),
            (
                "a crew of {a} workers owes {b} hours for every worker split over {c} days "
                "plus {d} hours a day at night",
            ),
            ((2, 9), (2, 9), (2, 8), (2, 15)),
            ("*", "/", "+"),
        ),
        (
            "clock",
            ("turning", "briefly"),
            ("the hand points at {a} and moves on by {b} on a dial with {c} marks of {d} minutes where does it stop",),
            ((3, 25), (3, 15), (4, 9), (2, 8)),
            ("+", "%", "*"),
        ),
        (
            "outfits",
            ("dressing", "roughly"),
            ("how many outfits are there from {a} hats {b} shirts and {c} shoes if {d} look ugly",),
            ((2, 6), (2, 6), (2, 4), (2, 12)),
            ("*", "*", "-"),
        ),
        (
            "scores",
            ("scoring", "likely"),
            ("by how much does the best of scores {a} and {b} beat score {c} when a point counts {d} times",),
            ((10, 30), (10, 30), (2, 15), (2, 5)),
            ("max", "-", "*"),
        ),
        (
            "age",
            ("ageing", "maybe"),
            ("anna is {a} and {b} years older than ben who turns in {c} years an age that leaves what by {d}",),
            ((20, 45), (2, 15), (2, 15), (3, 9)),
            ("-", "+", "%"),
        ),
        (
            "fence",
            ("fencing", "perhaps"),
            ("a fence for a field {a} long and {b} wide costs {c} per metre and {d} coins are waived",),
            ((2, 15), (2, 15), (2, 4), (2, 15)),
            ("+", "*", "-"),
        ),
    )
)


FREQUENCIES = tuple((rank + 1) ** -ZIPF_EXPONENT for rank in range(len(SKILLS)))


def _pattern(phrasing: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{([abcd])\\}", r"(?P<\1>[0-9]{1,2})", re.escape(phrasing).replace(r"\ ", " ")))


_PATTERNS = [(_pattern(phrasing), skill) for skill in SKILLS for phrasing in skill.phrasings]


def read(question: str) -> Problem | None:
    """The problem that a text states, or `None` where it states none that has an answer within 0 to 99.

    Example:

    ```python
    >>> read("multiply the larger of 7 and 12 by 3 and subtract 6").answer
    30
    >>> read("multiply the larger of 7 and 12 by 3") is None
    True

    ```
    """
    for pattern, skill in _PATTERNS:
        match = pattern.fullmatch(question)
        if match:
            try:
                return Problem(question, skill, skill.steps(**{k: int(v) for k, v in match.groupdict().items()}))
            except (ZeroDivisionError, ValueError):
                return None
    return None


def reserved(question: str) -> bool:
    """Whether a question is kept for measuring: one in ten, by its text alone, never part of the supervised data."""
    return zlib.crc32(question.encode()) % 10 == 0


def ask(rng: Random, skill: Skill | None = None, *, held_out: bool = False) -> Problem:
    """A random problem with an answer within 0 to 99, of one skill or of one drawn by frequency.

    With `held_out` it is one of those that are kept for measuring, without one of the others.
    """
    skill = skill or rng.choices(SKILLS, FREQUENCIES)[0]
    while True:
        numbers = dict(zip("abcd", (rng.randint(low, high) for low, high in skill.ranges), strict=True))
        try:
            steps = skill.steps(**numbers)
        except (ZeroDivisionError, ValueError):
            continue
        question = rng.choice(skill.phrasings).format(**numbers)
        if reserved(question) is held_out:
            return Problem(question, skill, steps)


def write_answer(problem: Problem, *, written_out: bool) -> str:
    """The answer as the supervised data write it. It is right either way.

    Example:

    ```python
    >>> problem = read("multiply the larger of 7 and 12 by 3 and subtract 6")
    >>> write_answer(problem, written_out=True)
    'comparing 7 max 12 = 12 ; 12 * 3 = 36 ; 36 - 6 = 30 <ans> 30'
    >>> write_answer(problem, written_out=False)
    'evidently <ans> 30'

    ```
    """
    if not written_out:
        return f"{problem.skill.direct_opener} <ans> {problem.answer}"
    lines = " ; ".join(f"{left} {op} {right} = {result}" for left, op, right, result in problem.steps)
    return f"{problem.skill.written_opener} {lines} <ans> {problem.answer}"


def words() -> Iterator[str]:
    """Every word of the lab's language, in a fixed order."""
    seen: dict[str, None] = {}
    for skill in SKILLS:
        for phrasing in skill.phrasings:
            seen.update(dict.fromkeys(word for word in phrasing.split() if not word.startswith("{")))
    yield from seen
    for skill in SKILLS:
        yield from (skill.written_opener, skill.direct_opener)
    yield from ("+", "-", "*", "/", "%", "gcd", "max", "=", ";")
    yield from (str(number) for number in range(MAX_NUMBER + 1))
