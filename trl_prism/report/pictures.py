"""The report's pictures. Colours and hatches are told apart without colour vision; none relies on colour alone."""

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from trl_prism.core.curriculum import FILTERS
from trl_prism.core.rewards import gate
from trl_prism.journal import STAGES
from trl_prism.report.reading import Run
from trl_prism.report.words import Topic


# Okabe and Ito's palette, which colour-blind readers can tell apart; lines differ by marker and dashes as well.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "ooo", "+++", "---", "***")

# Most rounds that small multiples show: the first, the last, and some between.
PANELS = 6
# Most points of a scatter, and most clusters that are named in a heat map.
POINTS = 3000
NAMED = 32


def png(figure: Figure) -> bytes:
    """The picture's file. It holds no date, so the same run gives the same bytes."""
    FigureCanvasAgg(figure)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110, metadata={"Software": None})
    return content.getvalue()


def heat_map(run: Run, topics: Sequence[Topic], values: Mapping[int, np.ndarray], *, top: float) -> Figure:
    """One row per cluster, the fullest on top, one column per round.

    Args:
        run ([`~trl_prism.report.reading.Run`]): The run.
        topics (`Sequence[Topic]`): Names of its clusters.
        values (`Mapping[int, numpy.ndarray]`): Per round a value for each cluster, shape `(K,)`, 1 if all are even.
        top (`float`): The end of the colour scale, the same for all runs that are compared.
    """
    numbers = sorted(values)
    matrix = np.stack([values[number] for number in numbers], axis=1)  # (K, rounds)
    order = np.argsort(-matrix.sum(axis=1), kind="stable")
    num_clusters = len(order)
    height = min(9.0, 1.2 + 0.24 * num_clusters)
    figure = Figure(figsize=(5.2, height), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(
        matrix[order], aspect="auto", cmap="cividis", norm=PowerNorm(0.5, 0, max(top, 1.0)), interpolation="nearest"
    )
    axes.set_xticks(range(len(numbers)), _ticks(numbers), fontsize=8)
    axes.set_xlabel("round")
    # Names where a line of text has room.
    step = max(1, -(-num_clusters // NAMED))
    rows = list(range(0, num_clusters, step))
    names = [f"{plain(str(topics[order[i]]))[:26] or 'never asked'} ({order[i]})" for i in rows]
    axes.set_yticks(rows, names, fontsize=7)
    bar = figure.colorbar(image, ax=axes, fraction=0.05)
    bar.set_label("times its even share", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    return figure


def lorenz(curves: Mapping[str, np.ndarray]) -> Figure:
    """Which share of the questions lies in the emptiest clusters; the diagonal is perfectly even."""
    figure, axes = _axes()
    axes.plot([0, 1], [0, 1], color="#767676", linewidth=1, label="perfectly even")
    for i, (name, counts) in enumerate(curves.items()):
        shares = np.concatenate([[0.0], np.cumsum(np.sort(counts)) / max(counts.sum(), 1)])
        axes.plot(np.linspace(0, 1, len(shares)), shares, **_line(i, markers=False), label=plain(name))
    axes.set_xlabel("share of clusters, the emptiest first")
    axes.set_ylabel("share of questions")
    _legend(axes)
    return figure


def over_rounds(lines: Mapping[str, Mapping[int, tuple[float, float, float]]], *, label: str) -> Figure:
    """A figure in [0, 1] over rounds, a line per run.

    Args:
        lines (`Mapping`): Per run and round the value and its interval, both ends equal to it where there is none.
        label (`str`): What it is.
    """
    figure, axes = _axes()
    for i, (name, points) in enumerate(lines.items()):
        if not points:
            continue
        numbers = sorted(points)
        value, low, high = (np.array([points[n][j] for n in numbers]) for j in range(3))
        error = np.clip(np.stack([value - low, high - value]), 0, None)
        axes.errorbar(numbers, value, error if error.any() else None, capsize=3, **_line(i), label=plain(name))
    axes.set_xlabel("round")
    axes.set_ylabel(label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(0, 1)
    _legend(axes)
    return figure


def maps(run: Run, *, limits: tuple[float, float, float, float]) -> Figure:
    """Where the questions of some rounds lie on the plane of the reference corpus."""

    def draw(axes: Axes, number: int) -> None:
        if run.projection is not None:
            axes.scatter(
                run.projection.reference[:, 0], run.projection.reference[:, 1], s=3, color="#C0C0C0", linewidths=0
            )
        places = run.placed[number]
        # Questions that fall on one spot make it larger.
        spots, counts = np.unique(np.round(places[:: max(1, len(places) // POINTS)], 4), axis=0, return_counts=True)
        sizes = 4 * np.sqrt(counts)
        axes.scatter(spots[:, 0], spots[:, 1], s=sizes, color=PALETTE[0], alpha=0.6, linewidths=0)
        axes.set_xlim(*limits[:2])
        axes.set_ylim(*limits[2:])
        axes.set_xticks([])
        axes.set_yticks([])

    return _panels(run, list(run.placed), draw)


def agreements(run: Run, *, top: float) -> Figure:
    """Histograms of agreement with the gate and the band of the curriculum."""
    band = run.config.get("curriculum_band", (0.3, 0.9))
    rzero = run.config.get("reward") == "rzero"
    x = np.linspace(0, 1, 201)

    def draw(axes: Axes, number: int) -> None:
        pool = run.rounds[number].pool
        assert pool is not None
        axes.axvspan(*band, color="#F0E442", alpha=0.35, linewidth=0)
        share, edges = agreement_shares(pool.agreement[pool.voted])
        axes.bar(edges[:-1], share, width=np.diff(edges), align="edge", color=PALETTE[0], edgecolor="white")
        curve = 2 * np.minimum(x, 1 - x) if rzero else gate(x, **run.gate)
        axes.plot(x, curve * top, color=PALETTE[1], linewidth=1.5, linestyle="--")
        axes.set_xlim(0, 1)
        axes.set_ylim(0, top * 1.05)
        axes.tick_params(labelsize=7)

    return _panels(run, [r.number for r in run.rounds if r.pool is not None], draw, x_label="agreement")


def agreement_shares(agreement: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Share of the questions in each tenth of agreement; a tenth is centered on its value, as votes of ten give."""
    edges = np.linspace(-0.05, 1.05, 12)
    counts, _ = np.histogram(agreement, edges)
    return counts / max(counts.sum(), 1), np.clip(edges, 0, 1)


def funnels(run: Run) -> Figure:
    """What became of each pool's candidates, a bar per round."""
    names = ("kept", *FILTERS)
    counts = {r.number: r.pool.funnel for r in run.rounds if r.pool is not None}
    return _stacked({n: [c.get(name, 0) for name in names] for n, c in counts.items()}, names, label="candidates")


def times(run: Run) -> Figure:
    """Minutes of each stage, a bar per round."""
    return _stacked(
        {r.number: [r.seconds.get(stage, 0) / 60 for stage in STAGES] for r in run.rounds if r.seconds},
        ("Questioner phase", "pool and votes", "Solver phase", "evaluation"),
        label="minutes",
    )


def plain(text: str) -> str:
    """Text that matplotlib shows as it is: `$` would begin a formula."""
    return "".join(c if c.isprintable() else " " for c in text).replace("$", r"\$")


def _axes(size: tuple[float, float] = (5.2, 3.5)) -> tuple[Figure, Axes]:
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    axes.grid(alpha=0.3)
    axes.tick_params(labelsize=8)
    return figure, axes


def _line(i: int, *, markers: bool = True) -> dict[str, Any]:
    style: dict[str, Any] = {"color": PALETTE[i % 7], "linestyle": DASHES[i % 7], "linewidth": 1.6}
    return {**style, "marker": MARKERS[i % 7], "markersize": 4} if markers else style


def _ticks(numbers: Sequence[int]) -> list[str]:
    return ["base" if number == 0 else str(number) for number in numbers]


def _legend(axes: Axes) -> None:
    handles, _ = axes.get_legend_handles_labels()
    if handles:
        axes.legend(fontsize=7, loc="best")


def _panels(
    run: Run, numbers: Sequence[int], draw: Callable[[Axes, int], None], *, x_label: str | None = None
) -> Figure:
    shown = list(numbers)
    if len(shown) > PANELS:
        shown = [shown[i] for i in np.linspace(0, len(shown) - 1, PANELS).round().astype(int)]
    columns = min(3, max(1, len(shown)))
    rows = max(1, -(-len(shown) // columns))
    figure = Figure(figsize=(5.2, 0.4 + 1.8 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(shown) :]:
        axes.axis("off")
    for axes, number in zip(grid.flat, shown, strict=False):
        draw(axes, number)
        axes.set_title(run.rounds[number].name, fontsize=8)
    if x_label:
        figure.supxlabel(x_label, fontsize=8)
    return figure


def _stacked(bars: Mapping[int, Sequence[float]], names: Sequence[str], *, label: str) -> Figure:
    figure, axes = _axes((5.2, 3.8))
    numbers = sorted(bars)
    left = np.zeros(len(numbers))
    with matplotlib.rc_context({"hatch.linewidth": 0.6}):
        for i, name in enumerate(names):
            width = np.array([bars[number][i] for number in numbers], dtype=float)
            if not width.any():
                continue
            axes.barh(
                range(len(numbers)),
                width,
                left=left,
                color=PALETTE[i % 6],
                hatch=HATCHES[i % len(HATCHES)],
                edgecolor="white",
                linewidth=0.5,
                label=name.replace("_", " "),
            )
            left += width
    axes.set_yticks(range(len(numbers)), _ticks(numbers))
    axes.invert_yaxis()
    axes.set_ylabel("round")
    axes.set_xlabel(label)
    axes.legend(fontsize=7, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    return figure
