"""The report: from the folder of a real run, and from folders that are damaged, huge or hostile."""

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.integration.conftest import small_settings
from trl_prism.cli import main
from trl_prism.core.curriculum import FILTERS, Candidate
from trl_prism.core.projection import Projection
from trl_prism.errors import PrismError
from trl_prism.recipe import config_from_mapping
from trl_prism.report.page import build, write
from trl_prism.report.reading import read_run
from trl_prism.report.words import topics
from trl_prism.run_dir import PROJECTION, RunDirectory
from trl_prism.self_play import play


K = 8
HOSTILE = (
    "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">",
    "</div></main></table><style>body{display:none}</style><h1>broken",
    "x" * 10_000,
    r"Let $\frac{1}{2}$ and \(a<b\) & {{ 7*7 }} {% raw %} \u202e reversed" + "\u202e abc",
    "$unclosed math _^ \\frac{ " + "\n" * 40,
    "\x00\x07 control",
)


def make_run(folder: Path, *, num_rounds: int = 2, num_questions: int = 120, collapsed: bool = False) -> Path:
    """A run's folder as the loop writes it, without training."""
    run_dir, rng = RunDirectory(folder), np.random.default_rng(0)
    run_dir.create()
    run_dir.write_config(yaml.safe_dump({"num_clusters": K, "num_rounds": num_rounds, "reward": "prism", "seed": 0}))
    run_dir.write_environment({"num_processes": 1, "attention": {"used": "sdpa"}})
    run_dir.partition.mkdir()
    Projection.fit(rng.standard_normal((50, 3))).save(run_dir.partition / PROJECTION)
    words = ["apples", "trains", "circles", "dice", "coins", "primes", "roads", "clocks"]
    rows = []
    for number in range(num_rounds + 1):
        width = 1 if collapsed and number else K
        pool = []
        for i in range(num_questions):
            cluster = int(rng.integers(width))
            fate = None if i % 3 else FILTERS[(i // 3) % len(FILTERS)]
            votes = json.dumps({"4": 7, "5": 3})
            pool.append(
                Candidate(
                    question=f"How many {words[cluster]} are there if {i} are added to {number}?",
                    answer="4",
                    agreement=int(rng.integers(1, 11)) / 10,
                    cluster=-1 if fate in ("malformed", "implausible") else cluster,
                    dropped=fate,
                    votes=votes,
                )
            )
        run_dir.write_pool(number, pool, [c for c in pool if c.dropped is None])
        run_dir.write_map(number, rng.standard_normal((sum(c.usable for c in pool), 2)))
        if number:
            run_dir.write_visits(number, {"visits": rng.random(K).tolist()})
        rows.append({"round": number, "diversity/semantic": 0.1 if width == 1 else 0.8, "pool/num_kept": 80})
    run_dir.write_metrics(rows)
    return folder


@pytest.fixture(scope="module")
def real_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "run"
    play(config_from_mapping(small_settings(folder)))
    return folder


def text_of(html: str) -> str:
    return re.sub(r'src="data:[^"]*"', "", html)


def test_the_page_of_a_real_run_shows_every_part(real_run):
    found = read_run(real_run)
    assert found.notes == []
    html, shown = build([found])
    names = {picture.name for picture in shown}
    expected = {"clusters", "visits", "lorenz", "diversity", "entropy", "skills", "map", "agreement", "funnel", "time"}
    assert expected <= names and "held_out-accuracy" in names and "labels" in names
    assert all(picture.content.startswith(b"\x89PNG") and len(picture.alt) > 30 for picture in shown)
    for anchor in ("clusters", "evenness", "diversity", "map", "agreement", "funnel", "solver", "time", "questions"):
        assert f'<section id="{anchor}">' in html
    # The votes that decided a question's agreement stand beside it.
    this = found.rounds[1].pool
    assert this is not None
    i = next(i for i, reason in enumerate(this.dropped) if reason is None)
    votes = json.loads(this.votes[i])
    assert max(votes.values()) == votes[this.answer[i]]
    assert max(votes.values()) / 4 == this.agreement[i]  # four votes in the small settings
    # What the loop measured and what the page computes from the pool are the same.
    spread = found.spread(1)
    assert spread is not None and spread.entropy == pytest.approx(found.rounds[1].row["coverage/entropy"])


def test_the_same_run_gives_the_same_page(real_run):
    assert build([read_run(real_run)])[0] == build([read_run(real_run)])[0]


def test_the_command_writes_page_and_pictures_and_compares_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    one, two = make_run(tmp_path / "a"), make_run(tmp_path / "b", collapsed=True)
    config = yaml.safe_load((two / "config.yaml").read_text())
    (two / "config.yaml").write_text(yaml.safe_dump({**config, "reward": "rzero"}))
    assert main(["report", str(one)]) == 0
    assert (one / "report" / "index.html").exists() and (one / "report" / "clusters.png").exists()
    assert main(["report", str(one), str(two)]) == 0
    html = (tmp_path / "report" / "index.html").read_text()
    assert "reward: was &#39;prism&#39;, is &#39;rzero&#39;" in html
    assert (tmp_path / "report" / "clusters-2.png").exists() and (tmp_path / "report" / "lorenz.png").exists()
    assert read_run(one).notes == []  # the report in its folder is no fault


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no/such/run"], "no/such/run is no folder"),
        (["."], "holds no run: config.yaml is missing"),
        (["a", "a"], "named twice"),
    ],
)
def test_what_is_no_run_is_refused(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "a", num_rounds=0, num_questions=3)
    assert main(["report", *words]) == 2
    assert message in capsys.readouterr().err


def test_what_is_missing_or_half_written_is_said_and_the_rest_is_shown(tmp_path):
    folder = make_run(tmp_path / "run")
    (folder / "round-00" / "pool.parquet").unlink()
    pool = folder / "round-01" / "pool.parquet"
    pool.write_bytes(pool.read_bytes()[:500])
    (folder / "round-02" / "visits.json").write_text('{"visits": [1')
    (folder / "environment.json").write_text("no json")
    (folder / "metrics.jsonl").write_text((folder / "metrics.jsonl").read_text() + '{"round": 3, "div')
    found = read_run(folder)
    told = "\n".join(found.notes)
    for what in ("round-00/pool.parquet is not there", "round-01/pool.parquet cannot", "round-02/visits.json cannot"):
        assert what in told
    assert "environment.json cannot be read" in told and "metrics.jsonl" not in told
    html, shown = build([found])
    assert "round-01/pool.parquet cannot be read" in html and "funnel" in {picture.name for picture in shown}


def test_a_run_that_has_just_begun_has_a_page(tmp_path):
    folder = make_run(tmp_path / "run", num_rounds=0, num_questions=2)
    shutil.rmtree(folder / "round-00")
    (folder / "metrics.jsonl").unlink()
    assert "nothing is measured yet" in build([read_run(folder)])[0]


def test_a_hundred_thousand_questions_take_under_half_a_minute_and_two_gigabytes(tmp_path):
    folder = make_run(tmp_path / "run", num_rounds=0, num_questions=100_000)
    program = (
        "import resource, sys\nfrom trl_prism.cli import main\n"
        "code = main(['report', sys.argv[1]])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\nsys.exit(code)"
    )
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - started < 30
    assert int(done.stdout.split()[-1]) * 1024 < 2 * 2**30


@pytest.fixture
def hostile(tmp_path):
    folder = make_run(tmp_path / "<b>run", num_questions=30)
    run_dir = RunDirectory(folder)
    pool = run_dir.read_pool(1)
    for i, text in enumerate(HOSTILE):
        pool[2 * i].question, pool[2 * i].answer, pool[2 * i].detail = text, text, text
        pool[2 * i].votes, pool[2 * i].cluster = json.dumps({text: 3}), i
        pool[2 * i].agreement, pool[2 * i].dropped = 0.75, None  # well rewarded, so that it is shown
    run_dir.write_pool(1, pool, pool)
    return folder


def test_a_hostile_question_is_shown_as_text(hostile):
    html = text_of(build([read_run(hostile)])[0])
    assert "<script" not in html and "&lt;script&gt;" in html
    assert "<b>run" not in html and "{{ 7*7 }}" in html
    assert "[...]" in html  # the one of 10,000 characters is cut


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium")
@pytest.mark.parametrize("width", [1280, 390])
def test_a_real_browser_shows_it_without_error_request_or_overflow(width, real_run, hostile, tmp_path):
    from playwright.sync_api import sync_playwright

    collapsed = make_run(tmp_path / "collapsed", collapsed=True)
    page_file = write([read_run(real_run), read_run(collapsed), read_run(hostile)], tmp_path / "page")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 900})
        errors: list[str] = []
        requests: list[str] = []
        page.on("console", lambda message: errors.append(message.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(page_file.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        assert errors == []
        assert {url for url in requests if not url.startswith("data:")} == {page_file.as_uri()}
        assert page.title().startswith("Curriculum report")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        # Nothing sticks out but what scrolls within its own box.
        wide = (
            "limit => [...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll') && "
            "e.getBoundingClientRect().right > limit + 1).map(e => e.outerHTML.slice(0, 200))"
        )
        assert page.evaluate(wide, width) == []
        images = page.evaluate("[...document.images].map(i => [i.alt.length, i.naturalWidth])")
        assert len(images) > 20 and all(alt > 20 and pixels > 100 for alt, pixels in images)
        browser.close()


def test_the_words_of_a_cluster_are_those_that_tell_it_from_the_others():
    questions = ["apples and pears", "apples and plums", "trains and rails", "trains and roads", "?!"]
    found = topics(questions, np.array([0, 0, 2, 2, -1]), num_clusters=3, num_words=1)
    assert [topic.words for topic in found] == [("apples",), (), ("trains",)]
    assert found[0].example == "apples and pears" and found[1].example == ""
    assert topics([], np.zeros(0, dtype=int), num_clusters=2)[0].words == ()


def test_rewards_are_those_of_the_run(tmp_path):
    folder = make_run(tmp_path / "run")
    found = read_run(folder)
    rewards, pool, visits = found.rewards(1), found.rounds[1].pool, found.rounds[1].visits
    assert rewards is not None and pool is not None and visits is not None
    i = next(i for i in range(len(pool)) if pool.usable[i] and 0.3 <= pool.agreement[i] <= 0.9)
    gate = max(0.0, 1 - abs(pool.agreement[i] - 0.75) / 0.4)
    rare = np.exp(-visits[pool.cluster[i]] / visits.mean())
    assert rewards[i] == pytest.approx(gate * (1 + 5 * rare))
    assert (rewards[~pool.usable] == -1).all()
    with pytest.raises(PrismError, match="is no folder"):
        read_run(folder / "nothing")


def test_the_projection_is_that_of_scikit_learn_and_survives(tmp_path):
    from sklearn.decomposition import PCA

    points = np.random.default_rng(0).standard_normal((50, 6)) * [5, 3, 1, 1, 1, 1]
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    fitted = Projection.fit(points)
    expected = PCA(2).fit_transform(points)
    assert np.abs(np.abs(fitted(points)) - np.abs(expected)).max() < 1e-5
    fitted.save(tmp_path / "p.safetensors")
    again = Projection.load(tmp_path / "p.safetensors")
    assert all(np.array_equal(getattr(fitted, name), getattr(again, name)) for name in vars(fitted))
    assert Projection.fit(np.array([[1.0], [-1.0]]))([[1.0]]).shape == (1, 2)  # one direction only
    (tmp_path / "p.safetensors").write_bytes(b"x" * 40)
    with pytest.raises(PrismError, match="cannot be read"):
        Projection.load(tmp_path / "p.safetensors")
