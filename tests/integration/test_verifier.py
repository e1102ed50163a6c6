"""Math-Verify in killable processes: real formulas, real poison, real kill -9."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from itertools import permutations
from pathlib import Path

import psutil
import pytest

from trl_prism.answers import equivalent, vote, vote_all
from trl_prism.core.sameness.guards import refused
from trl_prism.errors import PrismError
from trl_prism.ports.verifier import Verifier


@pytest.fixture(scope="module")
def verifier():
    made = Verifier(num_workers=1)
    yield made
    made.close()


def children(pid):
    return [
        child.pid for child in psutil.Process(pid).children() if any("verify_worker" in w for w in child.cmdline())
    ]


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def gone(pids, within=5.0):
    end = time.monotonic() + within
    while time.monotonic() < end and any(alive(pid) for pid in pids):
        time.sleep(0.05)
    return not any(alive(pid) for pid in pids)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (r"\frac{\pi}{2}", r"\pi/2", True),
        ("x^2+2x+1", "(x+1)^2", True),
        (r"\sqrt{8}", r"2\sqrt{2}", True),
        (r"\frac{1}{\sqrt{2}}", r"\frac{\sqrt{2}}{2}", True),
        ("x+1", "x+2", False),
        (r"3\pi", "9.42", False),
        (r"\left(\frac{\pi}{2}, \sqrt{8}\right)", r"(\pi/2, 2\sqrt{2})", True),
        (r"\{\sqrt{8}, 1\}", r"1, 2\sqrt2", True),
        (r"1 \pm \sqrt{2}", r"1+\sqrt{2}, 1-\sqrt{2}", True),
    ],
)
def test_formulas(verifier, a, b, expected):
    assert equivalent(a, b, verifier=verifier) is expected
    assert equivalent(b, a, verifier=verifier) is expected


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("listen", "silent"),  # bare words as products of letters
        ("50\\%", "0.5"),  # percent equal to two numbers
        ("1", "1, 2"),  # any overlap of several values
        ("101_2", "101"),  # a dropped base
        ("(1,2)", "[1,2]"),
        (r"\text{odd}", r"\text{do}"),
    ],
)
def test_lenient_matches_of_math_verify_are_not_taken_over(verifier, a, b):
    assert not equivalent(a, b, verifier=verifier) and not equivalent(b, a, verifier=verifier)


def test_nothing_is_evaluated_as_python(verifier, tmp_path):
    target = tmp_path / "touched"
    for text in (f"__import__('os').system('touch {target}')", f"\\text{{__import__('os').system('touch {target}')}}"):
        for other in ("x+1", text + "+0", "2"):
            equivalent(text, other, verifier=verifier)
            verifier.equal(text, other)
    assert not target.exists()


@pytest.mark.parametrize("limits", [{"timeout": 1.0, "wall_timeout": 60.0}, {"timeout": 60.0, "wall_timeout": 1.0}])
def test_a_worker_that_hangs_costs_its_pair_only(limits):
    before = set(children(os.getpid()))
    verifier = Verifier(num_workers=1, **limits)
    assert verifier.equal(r"\sqrt{8}", r"2\sqrt{2}")
    [first] = set(children(os.getpid())) - before
    start = time.monotonic()
    assert not verifier.equal("(x+y+z)^{99}", "2x")
    assert time.monotonic() - start < 5
    assert verifier.causes == {"timeout": 1}
    assert gone([first])
    assert verifier.equal("x^2-1", "(x-1)(x+1)")
    verifier.close()


def test_waiting_for_a_core_is_not_computing():
    """A stopped worker stands for one that a busy machine does not let run."""
    before = set(children(os.getpid()))
    verifier = Verifier(num_workers=1, timeout=0.5, wall_timeout=30.0)
    assert verifier.equal("x+x", "2x")
    [pid] = set(children(os.getpid())) - before
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(1.5, lambda: os.kill(pid, signal.SIGCONT)).start()
    assert verifier.equal(r"\sqrt{8}", r"2\sqrt{2}")
    assert not verifier.causes
    verifier.close()


def test_a_worker_killed_from_outside_loses_only_its_own_verdict():
    verifier = Verifier(num_workers=1)
    before = set(children(os.getpid()))
    assert verifier.equal("x+x", "2x")
    [pid] = set(children(os.getpid())) - before
    os.kill(pid, signal.SIGKILL)
    assert gone([pid])
    assert verifier.equal("y+y", "2y")
    threading.Timer(0.3, lambda: [os.kill(p, signal.SIGKILL) for p in set(children(os.getpid())) - before]).start()
    assert not verifier.equal("(x+y+z)^{98}", "2x")
    assert verifier.causes == {"died": 1}
    assert verifier.equal("z+z", "2z")
    verifier.close()


def test_memory_is_limited():
    code = "from trl_prism.ports.verify_worker import confine; confine({}); x = bytearray(600 * 2**20)"
    done = [
        subprocess.run([sys.executable, "-c", code.format(limit)], capture_output=True, text=True, check=False)
        for limit in (400, 4000)
    ]
    assert "MemoryError" in done[0].stderr and done[1].returncode == 0


def test_a_set_of_hard_formulas_has_a_budget_as_a_whole(verifier):
    one, other = (", ".join(f"|(x+y+z)^{{{k}}}|" for k in powers) for powers in (range(90, 95), range(80, 85)))
    start = time.monotonic()
    assert not equivalent(one, other, verifier=verifier)
    assert time.monotonic() - start < 5


def test_no_worker_at_all_is_an_error_and_not_a_verdict(monkeypatch):
    verifier = Verifier(num_workers=1)
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    for _ in range(2):
        with pytest.raises(PrismError, match="No Math-Verify worker can be started"):
            verifier.equal("x+x", "2x")
    monkeypatch.undo()
    assert verifier.equal("x+x", "2x")
    verifier.close()


def test_threads_share_the_workers():
    verifier = Verifier(num_workers=2)
    results = {}

    def ask(i):
        results[i] = verifier.equal(f"x+{i}+1", f"{i + 1}+x")

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 24 and all(results.values())
    verifier.close()


def test_after_a_fork_the_child_has_workers_of_its_own():
    verifier = Verifier(num_workers=1)
    assert verifier.equal("x+x", "2x")
    pid = os.fork()
    if pid == 0:
        ok = verifier.equal("y+y", "2y") and not verifier.equal("y", "z")
        verifier.close()
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert verifier.equal("w+w", "2w")
    verifier.close()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, None])
def test_no_orphan_is_left(how):
    code = """
        import sys, time
        from trl_prism.ports.verifier import Verifier
        v = Verifier(num_workers=2, timeout=60)
        v.equal("x+x", "2x")
        print("up", flush=True)
        if sys.argv[1] == "busy":
            v.equal("(x+y+z)^{99}", "2x")
    """
    mode = "done" if how is None else "busy"
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), mode],
        stdout=subprocess.PIPE,
        text=True,
        stderr=subprocess.DEVNULL,
    )
    assert parent.stdout.readline() == "up\n"
    pids = children(parent.pid)
    if how is not None:
        time.sleep(0.5)
        parent.send_signal(how)
    parent.wait(timeout=20)
    assert pids or how is None
    assert gone(pids)


def test_a_vote_does_not_depend_on_the_order(verifier):
    answers = [r"\sqrt{8}", r"2\sqrt{2}", "0.5", "1/2", None, r"2\sqrt2"]
    expected = vote(answers, verifier=verifier)
    assert expected.agreement == 3 / 6 and expected.answer == r"2\sqrt2"
    for order in list(permutations(answers))[::40]:
        assert vote(order, verifier=verifier) == expected
    assert vote_all([answers, ["1", "1.0"], [None]], verifier=verifier)[0] == expected


POISON = {
    "power tower": "9^{9^9}",
    "power tower without braces": "9^9^9^9",
    "tower in a fraction": r"\frac{1}{9^{9^{9}}}",
    "huge exponent": "10^{10000000}",
    "huge negative exponent": "2^{-99999999}",
    "factorial": "99999999!",
    "double factorial": "(9!)!!",
    "binomial": r"\binom{100000000}{50000000}",
    "power of a sum": "(x+y+z)^{200}",
    "power of a sum within the guards": "(x+y+z)^{99}",
    "product of powers": "(x+1)^{99}(y+2)^{99}(z+3)^{99}",
    "sum": r"\sum_{k=1}^{10^9} \frac{1}{k^2}",
    "product": r"\prod_{k=1}^{10^6} k",
    "integral": r"\int_0^{\infty} e^{-x^{x}} dx",
    "limit": r"\lim_{n \to \infty} (1+1/n)^{n^n}",
    "digits": "7" * 100_000,
    "decimal digits": "0." + "3" * 100_000,
    "scientific": "1e999999999",
    "nesting of braces": "{" * 100_000 + "1" + "}" * 100_000,
    "nesting of parentheses": "(" * 100_000 + "1" + ")" * 100_000,
    "open braces": "{" * 100_000,
    "nested fractions": r"\frac{1}{" * 5000 + "2" + "}" * 5000,
    "nested roots": r"\sqrt{" * 5000 + "2" + "}" * 5000,
    "few nested roots": r"\sqrt{2+" * 25 + "2" + "}" * 25,
    "a million characters": "x" * 1_000_000,
    "a million spaces": "1" + " " * 1_000_000 + "2",
    "a million commas": "1," * 500_000,
    "a million plus signs": "+".join(["x"] * 500_000),
    "NUL": "1\x002",
    "lone surrogate": "1\ud800",
    "all controls": "".join(map(chr, range(32))),
    "right to left": "‮123‬",
    "Arabic digits": "١٢٣",
    "Devanagari digits": "१२३",
    "emoji": "🎉" * 1000,
    "family emoji": "👨‍👩‍👧‍👦",
    "combining marks": "e" + "\u0301" * 10_000,
    "zero width": "1\u200b2",
    "vulgar fractions": "½⅓¼" * 100,
    "superscripts": "2" + "⁹" * 500,
    "roman numeral": "Ⅷ",
    "circled": "①②③",
    "TeX macro definition": r"\def\a{\a\a}\a",
    "TeX newcommand": r"\newcommand{\x}{\x\x}\x",
    "TeX input": r"\input{/etc/passwd}",
    "TeX write": r"\immediate\write18{touch /tmp/pwned}",
    "Python": "__import__('os').abort()",
    "Python in text": r"\text{__import__('os').abort()}",
    "Python lambda": "(lambda f: f(f))(lambda f: f(f))",
    "format string": "{0.__class__}%s%n",
    "regular expression bomb": "a" * 40 + "!" + "(a+)+$",
    "thousands bomb": "1" + ",000" * 20_000,
    "thousands bomb ending wrong": "1" + ",000" * 400 + ",0",
    "units bomb": "5 " + "cm " * 600,
    "words bomb": "and " * 5000,
    "and-list": " and ".join(["1"] * 400),
    "pm bomb": r"\pm " * 500,
    "set of sets": r"\{" * 60 + "1" + r"\}" * 60,
    "matrix": r"\begin{pmatrix}" + " & ".join(["x"] * 100) + r"\end{pmatrix}",
    "unclosed matrix": r"\begin{pmatrix} 1 & 2 \\",
    "wrong commands": r"\frac\frac\frac\sqrt^^__",
    "many underscores": "_" * 2000,
    "carets": "^" * 2000,
    "big modulus": r"7^{7^{7^{7}}} \mod 1000",
    "gcd": r"\gcd(10^{50}, 10^{51})",
    "trigonometry": r"\sin(\cos(\tan(\sin(\cos(\tan(x))))))^{50}",
    "logarithms": r"\log_{\log_{2}{3}}{\log_{3}{\log_{4}{5}}}",
    "absolute values": "|" * 200,
    "infinity arithmetic": r"\infty - \infty + \frac{0}{0}",
    "complex power": "i^{i^{i}}",
    "empty": "",
    "only a sign": "-",
}


@pytest.mark.parametrize("name", POISON)
def test_poison(verifier, name):
    text = POISON[name]
    for other in ("7", r"x^2+\pi"):
        start = time.monotonic()
        equivalent(text, other, verifier=verifier)
        equivalent(text, text + " ", verifier=verifier)
        assert time.monotonic() - start < 5
    assert equivalent(r"\sqrt{18}", r"3\sqrt{2}", verifier=verifier), "the next pair was harmed"


def test_there_is_poison_enough():
    assert len(POISON) >= 60


def test_guards_let_answers_of_real_problems_through(data):
    import json

    rows = [json.loads(line) for line in (data / "math500.jsonl").read_text().splitlines()]
    stopped = [row["answer"] for row in rows if refused(row["answer"])]
    assert len(stopped) <= 2, stopped
