"""The sections of the page: what each shows, and in plain words what a healthy and a collapsed run look like."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from matplotlib.figure import Figure

from trl_prism.core.coverage import coverage
from trl_prism.report import pictures
from trl_prism.report.reading import Run
from trl_prism.report.words import Topic
from trl_prism.run_dir import round_name


@dataclass(frozen=True)
class Picture:
    """A picture and what it says in words. Those of one `row` stand side by side."""

    name: str
    row: str
    title: str
    alt: str
    content: bytes = field(repr=False)

    @property
    def data(self) -> str:
        return "data:image/png;base64," + base64.b64encode(self.content).decode()


@dataclass
class Section:
    """A heading, plain words on what to look for, pictures, and a table."""

    anchor: str
    title: str
    healthy: str
    collapsed: str
    pictures: list[Picture] = field(default_factory=list)
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


def sections(runs: Sequence[Run], named: Sequence[list[Topic]]) -> list[Section]:
    """All sections that have something to show.

    Args:
        runs (`Sequence[Run]`): The runs.
        named (`Sequence[list[Topic]]`): Per run the names of its clusters.
    """
    found = [
        _clusters(runs, named),
        _evenness(runs),
        _diversity(runs),
        _maps(runs),
        _agreements(runs),
        _funnels(runs),
        _solver(runs),
        _times(runs),
    ]
    return [section for section in found if section.pictures or section.rows]


def name_of(runs: Sequence[Run], i: int) -> str:
    """A run's name, made different where two folders are called alike."""
    names = [run.name for run in runs]
    return names[i] if names.count(names[i]) == 1 else f"{names[i]} ({i + 1})"


def _picture(runs: Sequence[Run], i: int | None, kind: str, title: str, alt: str, figure: Figure) -> Picture:
    """A picture of one run, or of all where `i` is `None`."""
    number = "" if i is None or len(runs) == 1 else f"-{i + 1}"
    who = "" if i is None or len(runs) == 1 else f"{name_of(runs, i)}: "
    row = "all runs" if i is None else kind
    return Picture(f"{kind}{number}", row, f"{who}{title}", f"{who}{alt}", pictures.png(figure))


def _clusters(runs: Sequence[Run], named: Sequence[list[Topic]]) -> Section:
    section = Section(
        "clusters",
        "Which kinds of question are asked",
        "In a healthy run most rows stay coloured to the last round: every kind of question goes on being asked.",
        "In a collapsed run a few rows glow and the others turn dark: the Questioner asks one kind of question.",
    )
    asked = [
        {
            r.number: counts * run.num_clusters / max(counts.sum(), 1)
            for r in run.rounds
            if (counts := run.counts(r.number)) is not None
        }
        for run in runs
    ]
    visits = [
        {r.number: r.visits / max(r.visits.mean(), 1e-12) for r in run.rounds if r.visits is not None} for run in runs
    ]
    for kind, title, all_values in (
        ("clusters", "questions of the pool per cluster", asked),
        ("visits", "remembered visits per cluster", visits),
    ):
        tops = [value.max() for values in all_values for value in values.values()]
        for i, (run, values) in enumerate(zip(runs, all_values, strict=True)):
            if not values:
                continue
            last = values[max(values)]
            alt = (
                f"Heat map of {title} over {len(values)} rounds. In the last one {int((last > 0.1).sum())} of "
                f"{run.num_clusters} clusters have at least a tenth of their even share, and the fullest has "
                f"{last.max():.1f} times it."
            )
            figure = pictures.heat_map(run, named[i], values, top=float(max(tops)))
            section.pictures.append(_picture(runs, i, kind, title, alt, figure))
    return section


def _evenness(runs: Sequence[Run]) -> Section:
    section = Section(
        "evenness",
        "How evenly questions are spread over clusters",
        "Healthy: the last round's line stays near the base model's; entropy stays high, Gini low.",
        "Collapsed: the line hugs the lower right corner, since nearly all questions lie in a few clusters.",
        head=("run", "round", "entropy", "Gini", "active clusters", "share of the 10 fullest"),
    )
    curves, rows = {}, []
    for i, run in enumerate(runs):
        spreads = [(r, run.spread(r.number)) for r in run.rounds]
        found = [(r, spread) for r, spread in spreads if spread is not None]
        for r, spread in found:
            rows.append(
                (
                    name_of(runs, i),
                    r.name,
                    f"{spread.entropy:.2f}",
                    f"{spread.gini:.2f}",
                    f"{spread.active_clusters} of {run.num_clusters}",
                    f"{spread.top_share:.2f}",
                )
            )
        for r, _ in found[:1] + found[1:][-1:]:  # first and last
            counts = run.counts(r.number)
            assert counts is not None
            curves[f"{name_of(runs, i)}, {r.name}"] = counts
    if curves:
        alt = "Lorenz curves. " + "; ".join(f"{name}: Gini {coverage(c).gini:.2f}" for name, c in curves.items())
        section.pictures.append(
            _picture(runs, None, "lorenz", "Lorenz curves, first and last round", alt, pictures.lorenz(curves))
        )
    section.rows = rows
    return section


def _lines(runs: Sequence[Run], column: str) -> dict[str, dict[int, tuple[float, float, float]]]:
    """A column of the metrics, without an interval."""
    return {
        name_of(runs, i): {
            r.number: (float(r.row[column]),) * 3 for r in run.rounds if isinstance(r.row.get(column), int | float)
        }
        for i, run in enumerate(runs)
    }


def _over_rounds(
    runs: Sequence[Run],
    kind: str,
    title: str,
    lines: Mapping[str, Mapping[int, tuple[float, float, float]]],
) -> list[Picture]:
    known = {name: points for name, points in lines.items() if points}
    if not known:
        return []
    said = (
        f"{name}: {points[min(points)][0]:.2f} in {_round(min(points))}, {points[max(points)][0]:.2f} in "
        f"{_round(max(points))}"
        for name, points in known.items()
    )
    alt = f"{title} over rounds. " + "; ".join(said) + "."
    return [_picture(runs, None, kind, title, alt, pictures.over_rounds(lines, label=title))]


def _round(number: int) -> str:
    return ("the " if number == 0 else "") + round_name(number)


def _diversity(runs: Sequence[Run]) -> Section:
    section = Section(
        "diversity",
        "How different the questions of a round are",
        "Healthy: the lines stay about where the base model's questions are.",
        "Collapsed: semantic diversity falls towards 0, since all questions mean nearly the same; in R-Zero's runs "
        "it falls within a few rounds.",
    )
    for kind, title, column in (
        ("diversity", "semantic diversity", "diversity/semantic"),
        ("entropy", "coverage entropy", "coverage/entropy"),
        ("skills", "skill entropy (true kinds)", "diversity/skill_entropy"),
    ):
        section.pictures += _over_rounds(runs, kind, title, _lines(runs, column))
    return section


def _maps(runs: Sequence[Run]) -> Section:
    section = Section(
        "map",
        "Where the questions lie",
        "The two directions in which the reference corpus (grey) varies most. Healthy: the questions (blue) lie over "
        "all of the grey in every round.",
        "Collapsed: they shrink to a spot.",
    )
    every = [places for run in runs for places in run.placed.values()]
    if not every:
        return section
    points = np.concatenate([*every, *(run.projection.reference for run in runs if run.projection is not None)])
    low, high = points.min(axis=0), points.max(axis=0)
    margin = 0.05 * np.maximum(high - low, 1e-6)
    limits = (low[0] - margin[0], high[0] + margin[0], low[1] - margin[1], high[1] + margin[1])
    for i, run in enumerate(runs):
        places = list(run.placed.values())
        if not places:
            continue
        explained = float(run.projection.explained.sum()) if run.projection is not None else 0.0
        first, last = (p.std(axis=0).mean() for p in (places[0], places[-1]))
        alt = (
            f"Scatter of questions on two principal components, which hold {explained:.0%} of the corpus's variance. "
            f"From first to last round the spread goes from {first:.3f} to {last:.3f}."
        )
        title = f"questions in embedding space ({explained:.0%} of the variance)"
        section.pictures.append(_picture(runs, i, "map", title, alt, pictures.maps(run, limits=limits)))
    return section


def _agreements(runs: Sequence[Run]) -> Section:
    section = Section(
        "agreement",
        "How sure the Solver is of its answers",
        "Agreement is the share of votes that equal the majority; it is not accuracy. Yellow: the curriculum's band. "
        "Dashed: what the Questioner earns for an agreement. Healthy: many questions under the dashed line.",
        "Troubled: nearly all at 1 (too easy, nothing to learn) or near 0 (nothing to agree on); or all in the band "
        "while label accuracy falls, which means that the Solver errs with conviction.",
    )
    shares = [
        pictures.agreement_shares(r.pool.agreement[r.pool.voted])[0].max()
        for run in runs
        for r in run.rounds
        if r.pool is not None
    ]
    for i, run in enumerate(runs):
        voted = [(r.name, r.pool.agreement[r.pool.voted]) for r in run.rounds if r.pool is not None]
        if voted:
            alt = "Histograms of agreement. Mean: " + ", ".join(
                f"{name} {values.mean():.2f}" for name, values in voted if len(values)
            )
            figure = pictures.agreements(run, top=float(max(*shares, 0.05)))
            section.pictures.append(_picture(runs, i, "agreement", "agreement", alt, figure))
    return section


def _funnels(runs: Sequence[Run]) -> Section:
    section = Section(
        "funnel",
        "What becomes of a pool",
        "Healthy: a steady part of each pool is kept.",
        "Troubled: duplicates, malformed, too easy or too hard questions eat the pool up round by round.",
    )
    for i, run in enumerate(runs):
        funnels = [(r.name, r.pool.funnel) for r in run.rounds if r.pool is not None]
        if funnels:
            said = (f"{name}: {f.get('kept', 0)} of {sum(f.values())} kept" for name, f in funnels)
            section.pictures.append(
                _picture(runs, i, "funnel", "candidates by fate", "; ".join(said), pictures.funnels(run))
            )
    return section


def _solver(runs: Sequence[Run]) -> Section:
    section = Section(
        "solver",
        "What the Solver can do, and whether its labels are right",
        "Bars are 95 % bootstrap intervals over problems. Healthy: accuracy rises and label accuracy holds.",
        "Troubled: label accuracy falls round by round, and accuracy stops or falls after it: the Solver trains on "
        "its own errors. Labels are majority answers; how many are right is known only where the domain knows truth.",
        head=("run", "round", "benchmark", "figure", "value", "95 % interval"),
    )
    benchmarks = list(dict.fromkeys(name for run in runs for r in run.rounds for name in r.scores))
    rows = []
    for name in benchmarks:
        for score in _scores_shown(runs, name):
            lines: dict[str, dict[int, tuple[float, float, float]]] = {}
            for i, run in enumerate(runs):
                points = {}
                for r in run.rounds:
                    found = r.scores.get(name, {}).get(score)
                    if found:
                        points[r.number] = (found["value"], found["low"], found["high"])
                        interval = f"{found['low']:.3f} to {found['high']:.3f}"
                        title = name.replace("_", " ")
                        rows.append((name_of(runs, i), r.name, title, score, f"{found['value']:.3f}", interval))
                lines[name_of(runs, i)] = points
            title = f"{name.replace('_', ' ')}: {'greedy accuracy' if score == 'accuracy' else score}"
            section.pictures += _over_rounds(runs, f"{name}-{score.replace('@', '-at-')}", title, lines)
    for kind, title, column in (
        ("labels", "label accuracy", "labels/accuracy"),
        ("mean-agreement", "mean agreement", "questioner/mean_agreement"),
    ):
        section.pictures += _over_rounds(runs, kind, title, _lines(runs, column))
    section.rows = rows
    return section


def _scores_shown(runs: Sequence[Run], benchmark: str) -> list[str]:
    """Greedy accuracy and the vote's; of the others the page's table would have too many."""
    known = dict.fromkeys(score for run in runs for r in run.rounds for score in r.scores.get(benchmark, {}))
    return [score for score in known if score == "accuracy" or score.startswith(("mean@", "maj@"))]


def _times(runs: Sequence[Run]) -> Section:
    section = Section("time", "Where the time goes", "Minutes of each stage of each round, all launches together.", "")
    for i, run in enumerate(runs):
        total = sum(sum(r.seconds.values()) for r in run.rounds)
        if total:
            alt = f"Minutes per stage and round; {total / 60:.1f} minutes in all."
            section.pictures.append(_picture(runs, i, "time", "time per stage", alt, pictures.times(run)))
    return section
