"""Pairs of answers as models write them, through all of `equivalent`."""

import pytest

from trl_prism.answers import equivalent, vote
from trl_prism.ports.verifier import Verifier


@pytest.fixture(scope="module")
def verifier():
    made = Verifier(num_workers=1)
    yield made
    made.close()


DIFFERENT = [
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix} 2 \\ 1 \end{pmatrix}"),
    (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", r"\begin{pmatrix} 1 & 3 \\ 2 & 4 \end{pmatrix}"),
    (r"\begin{pmatrix} -2 \\ -14 \\ -7 \end{pmatrix}", r"\begin{pmatrix} -7 \\ -14 \\ -2 \end{pmatrix}"),
    ("a_{11}", "a_{12}"),
    ("a_{12}", "10"),
    ("F_{16}", "15"),
    (r"1+2\mathrm{i}", "3"),
    (r"2\mathrm{e}", "2"),
    (r"2\mathrm{\pi}", "2"),
    ("2 pi", "2"),
    ("3 sin", "3"),
    ("5 million", "5"),
    (r"5\text{ million}", "5"),
    ("2 dozen", "2"),
    ("5 factorial", "5"),
    ("5 squared", "5"),
    ("5 degrees below zero", "5"),
    ("1 2", "12"),
    ("f'(x)", "f(x)"),
    ("y''", "y'"),
    ("5'", "5"),
    ("3:30", "1:10"),
    ("10:30", "1:3"),
    ("3:4:5", "3:5:4"),
    ("2023-01-02", "2023-02-01"),
    ("2023-01-02", "2020"),
    ("€5", r"\$5"),
    ("a tale", "a late"),
    ("listen 1", "silent 1"),
    ("Step 1 then 2", "Step 2 then 1"),
    ("k=2, b=3", "3, 2"),
    ("x=1, y=2", "2, 1"),
    ("x=1, y=2", "x=2, y=1"),
    ("a=2", "b=2"),
    ("x=y", "x=z"),
    ("1", "-1"),
    (r"\frac{1}{2}", r"\frac{2}{1}"),
    ("[1,2]", "(1,2)"),
    (r"(-\infty, 1)", r"(-\infty, 1]"),
    (r"3\sqrt{2}", r"2\sqrt{3}"),
]

SAME = [
    (r"\begin{pmatrix} -2 \\ -14 \\ -7 \end{pmatrix}", r"\begin{pmatrix}-2\\-14\\-7\end{pmatrix}"),
    (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
    (r"1+2\mathrm{i}", "1+2i"),
    ("5 million", "5000000"),
    (r"16\pi \text{ cm}^2", r"16\pi"),
    (r"5\sqrt{3}\text{ units}", r"5\sqrt{3}"),
    (r"12\pi\text{ square inches}", r"12\pi"),
    (r"\frac{\pi}{2}\text{ radians}", r"\frac{\pi}{2}"),
    (r"\frac{180}{\pi}^\circ", r"\frac{180}{\pi}"),
    (r"\cos(\frac{\pi}{2})", "0"),
    (r"\sin(\pi)", "0"),
    (r"\sqrt{2}\sqrt{3}-\sqrt{6}", "0"),
    ("(x+1)^2-x^2-2x-1", "0"),
    ("€5", "5 euros"),
    (r"-\$5", "-5"),
    ("3 : 4", "3:4"),
    ("x=y", "y=x"),
    ("y=2x+3", "2x+3=y"),
    ("y=2x+3", "2x+3"),
    ("5 = x", "x=5"),
    ("x=1, y=2", "1, 2"),
    ("x=1, y=2", "y=2, x=1"),
    ("2 hrs", "2 hours"),
    ("3 lbs", "3 pounds"),
    ("f'(x)", "f ' (x)"),
    (r"f^{\prime}(x)", "f'(x)"),
]


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_different(verifier, a, b):
    assert not equivalent(a, b, verifier=verifier) and not equivalent(b, a, verifier=verifier)


@pytest.mark.parametrize(("a", "b"), SAME)
def test_same(verifier, a, b):
    assert equivalent(a, b, verifier=verifier) and equivalent(b, a, verifier=verifier)


def test_ratios_do_not_vote_as_fractions(verifier):
    assert vote(["3:30", "1:10", "7:70", None], verifier=verifier).agreement == 0.25
