"""From runs that were read to one page and its pictures."""

import json
import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined

from trl_prism import __version__
from trl_prism.console import cell
from trl_prism.journal import differences
from trl_prism.ports.files import make_folder, write_text
from trl_prism.report.reading import Run
from trl_prism.report.sections import Picture, name_of, sections
from trl_prism.report.words import Topic, topics


# Characters of a question that are shown at once, and in all.
SHOWN, LONGEST = 280, 4000
# Questions per round at either end of the reward.
EXTREMES = 10


def build(runs: Sequence[Run]) -> tuple[str, list[Picture]]:
    """The page as HTML, which asks for nothing from anywhere, and its pictures."""
    named = _topics(runs)
    found = sections(runs, named)
    template = _environment().from_string((files("trl_prism.report") / "page.html.j2").read_text(encoding="utf-8"))
    html = template.render(
        runs=runs,
        summary=_summary(runs),
        sections=found,
        clusters=[(run, _cluster_rows(run, named[i])) for i, run in enumerate(runs)],
        questions=[(run, _questions(run, named[i])) for i, run in enumerate(runs)],
        differences=[(run, differences(runs[0].config, run.config)) for run in runs[1:]],
        version=__version__,
    )
    return html, [picture for section in found for picture in section.pictures]


def write(runs: Sequence[Run], folder: str | os.PathLike[str]) -> Path:
    """Writes `index.html` and the pictures as PNG into a folder, and returns the page's path."""
    path = Path(folder)
    make_folder(path)  # before the work
    html, shown = build(runs)
    for picture in shown:
        (path / f"{picture.name}.png").write_bytes(picture.content)
    write_text(path / "index.html", html)
    return path / "index.html"


def _environment() -> Environment:
    # Everything is escaped: questions and answers are a model's output.
    return Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def _topics(runs: Sequence[Run]) -> list[list[Topic]]:
    found = []
    for run in runs:
        pools = [r.pool for r in run.rounds if r.pool is not None]
        questions = [q for pool in pools for q in pool.question]
        clusters = np.concatenate([pool.cluster for pool in pools]) if pools else np.zeros(0, dtype=int)
        found.append(topics(questions, clusters, num_clusters=run.num_clusters))
    return found


def _summary(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The first thing on the page: each run in a few figures, base model beside the last round."""
    columns = (
        ("semantic diversity", "diversity/semantic", ".2f"),
        ("coverage entropy", "coverage/entropy", ".2f"),
        ("questions kept", "pool/num_kept", "d"),
        ("label accuracy", "labels/accuracy", ".2f"),
        ("Solver accuracy", "solver/accuracy", ".3f"),
    )
    cards = []
    for i, run in enumerate(runs):
        rows = [r.row for r in run.rounds if r.row]
        done, planned = max((row["round"] for row in rows), default=None), run.config.get("num_rounds")
        state = "nothing is measured yet" if done is None else f"{done} of {planned} rounds are done"
        figures = [
            (title, cell(rows[0].get(key), form), cell(rows[-1].get(key), form))
            for title, key, form in columns
            if rows and any(row.get(key) is not None for row in (rows[0], rows[-1]))
        ]
        attention = run.environment.get("attention") or {}
        facts = [
            ("base model", "/".join(Path(str(run.config.get("model_name_or_path", "?"))).parts[-2:])),
            ("reward", str(run.config.get("reward", "?"))),
            ("a round's Questioner starts from the last", str(run.config.get("questioner_init", "?"))),
            ("seed", str(run.config.get("seed", "?"))),
            ("processes", str(run.environment.get("num_processes", "?"))),
            ("attention", str(attention.get("used", "?"))),
        ]
        cards.append({"run": run, "name": name_of(runs, i), "state": state, "figures": figures, "facts": facts})
    return cards


def _cluster_rows(run: Run, named: Sequence[Topic]) -> list[dict[str, Any]]:
    counts = [run.counts(r.number) for r in run.rounds]
    total = np.sum([c for c in counts if c is not None], axis=0) if any(c is not None for c in counts) else None
    if total is None:
        return []
    return [
        {
            "cluster": int(k),
            "words": str(named[k]) or "never asked",
            "example": named[k].example[:SHOWN],
            "counts": ["-" if c is None else str(int(c[k])) for c in counts],
        }
        for k in np.argsort(-total, kind="stable")
    ]


def _questions(run: Run, named: Sequence[Topic]) -> list[dict[str, Any]]:
    """The most and the least rewarded questions of each round."""
    shown = []
    for r in run.rounds:
        rewards = run.rewards(r.number)
        if r.pool is None or rewards is None or not len(r.pool):
            continue
        order = np.argsort(-rewards, kind="stable")
        most, least = order[:EXTREMES], order[max(EXTREMES, len(order) - EXTREMES) :]
        shown.append(
            {
                "round": r.name,
                "groups": [
                    (title, [_question(r.pool, int(i), float(rewards[i]), named) for i in indices])
                    for title, indices in (("most rewarded", most), ("least rewarded", least))
                    if len(indices)
                ],
            }
        )
    return shown


def _question(pool: Any, i: int, reward: float, named: Sequence[Topic]) -> dict[str, Any]:
    text = pool.question[i]
    cluster = int(pool.cluster[i])
    try:
        votes = [(str(answer)[:80], int(count)) for answer, count in json.loads(pool.votes[i] or "{}").items()]
    except (ValueError, AttributeError, TypeError):
        votes = []
    return {
        "text": text[:SHOWN],
        "rest": text[SHOWN:LONGEST],
        "cut": len(text) > LONGEST,
        "length": len(text),
        "reward": reward,
        "agreement": float(pool.agreement[i]),
        "answer": (pool.answer[i] or "none")[:80],
        "votes": votes[:5],
        "more_votes": max(0, len(votes) - 5),
        "cluster": f"{named[cluster]} ({cluster})" if 0 <= cluster < len(named) else "none",
        "fate": (pool.dropped[i] or "kept").replace("_", " "),
        "detail": (pool.detail[i] or "")[:200],
    }
