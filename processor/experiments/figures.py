"""Pictures of the experiments. One style: quiet axes, direct labels, the same colour for the same policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from processor.core.errors import GForceError
from processor.core.exact import Floats, Ints
from producers.synthetic import Population

from . import lineup

if TYPE_CHECKING:
    from .pareto import Point
    from .real import RealRow as RealRow
    from .scores import Figure
    from .stress import StressRow as StressRow
    from .synthetic import SyntheticRow as SyntheticRow

BAR_POLICIES = (lineup.GROUPAWARE.name, lineup.PAPER.name, lineup.GAP.name)

MARKED = {lineup.GAP.name: (0.1, 0.2, 1.0), lineup.MIXTURE.name: (0.2, 1.0)}
"""λ written beside their points on the Pareto front."""

STYLE: dict[str, Any] = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "svg.hashsalt": "gforce",
    "figure.facecolor": "white",
}


def canvas(rows: int = 1, columns: int = 1, size: tuple[float, float] = (7, 4), **kwargs: Any) -> tuple[Any, Any]:
    try:
        import matplotlib
    except ImportError:
        raise GForceError('pictures need matplotlib: pip install "gforce[experiments]"') from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    matplotlib.rcParams.update(STYLE)  # type: ignore[arg-type]
    return pyplot.subplots(rows, columns, figsize=size, constrained_layout=True, **kwargs)


def _name(row: Any) -> str:
    return f"gforce/{row.objective}" if row.objective else str(row.policy)


def gap_against_base_rate(rows: Sequence[SyntheticRow], limits: Mapping[float, float]) -> Any:
    """FPR gap, FNR gap and loss of every policy against μ_B, with the published points."""
    figure, axes = canvas(1, 3, size=(12, 4.2), sharex=True)
    for name in dict.fromkeys(_name(row) for row in rows):
        mine = [row for row in rows if _name(row) == name]
        mu = [row.mu_b for row in mine]
        colour, style = lineup.COLOURS[name], {"marker": "o", "markersize": 4, "label": lineup.TITLES[name]}
        axes[0].plot(mu, [row.fpr_gap.mean for row in mine], color=colour, **style)
        axes[1].plot(mu, [row.fnr_gap.mean for row in mine], color=colour, **style)
        axes[2].plot(mu, [row.loss for row in mine], color=colour, **style)
    printed = [row for row in rows if row.published and row.objective == "paper"]
    for axis, which in ((axes[0], 0), (axes[1], 1)):
        points = [row.published[which] for row in printed if row.published]
        axis.plot([row.mu_b for row in printed], points, "x", color="black", label="published G-FORCE")
    axes[2].plot(
        list(limits),
        list(limits.values()),
        ":." if len(limits) == 1 else ":",
        color="black",
        label="limit of exact fairness",
    )
    for axis, title, unit in zip(
        axes,
        ("FPR gap", "FNR gap", "Loss"),
        ("difference between the groups", "", "wrong decisions per round"),
        strict=True,
    ):
        axis.set(title=title, xlabel=r"base rate of the small group, $\mu_B$", ylabel=unit)
    gaps = [gap.mean for row in rows for gap in (row.fpr_gap, row.fnr_gap)]
    losses = [*(row.loss for row in rows), *limits.values()]
    for axis in axes[:2]:  # the same scale for both
        axis.set_ylim(0, 1.05 * np.nanmax([*gaps, 0.5]))
    axes[2].set_ylim(min(0.1, 0.95 * min(losses)), max(0.23, 1.05 * max(losses)))
    handles, names = axes[0].get_legend_handles_labels()
    more, more_names = axes[2].get_legend_handles_labels()
    figure.legend([*handles, more[-1]], [*names, more_names[-1]], loc="outside lower center", ncols=4, fontsize=9)
    return figure


def accuracy_bars(rates: Mapping[str, Mapping[str, Floats]], populations: Mapping[str, Population]) -> Any:
    """Accuracy on each (group, label), GroupAware beside G-FORCE, in each setting; bars: ± 1 deviation."""
    figure, axes = canvas(len(rates), 3, size=(11, 6.2), sharey=True, sharex=True)
    cells = [(g, y) for g in range(2) for y in (1, 0)]
    names = [f"{'AB'[g]}, {'−+'[y]}" for g, y in cells]
    for i, (setting, by_policy) in enumerate(rates.items()):
        population = populations[setting]
        for axis, name in zip(axes[i], BAR_POLICIES, strict=True):
            accuracy = 1.0 - by_policy[name]
            means = [np.nanmean(accuracy[:, g, y]) for g, y in cells]
            spread = [np.nanstd(accuracy[:, g, y]) for g, y in cells]
            colours = ["#4c78a8" if g == 0 else "#f2a65a" for g, _ in cells]
            axis.bar(names, means, yerr=spread, color=colours, capsize=4, width=0.65)
            weight = population.share[:, None] * population.base_rate
            overall = float((np.nanmean(accuracy, axis=0) * weight).sum())
            axis.axhline(overall, color="#c0392b", linestyle="--", linewidth=1.2)
            axis.text(3.4, 1.1, f"- - overall {overall:.2f}", color="#c0392b", ha="right", va="top", fontsize=9)
            axis.set(title=f"{lineup.TITLES[name]}\n{setting}", ylim=(0, 1.12))
        axes[i][0].set_ylabel("accuracy")
    for axis in axes[-1]:
        axis.set_xlabel("group, true label")
    return figure


def pareto_front(points: Sequence[Point], limit: float) -> Any:
    """Mean gap against loss; each line is one objective, each dot one λ."""
    figure, axis = canvas(size=(7.6, 5))
    for name in dict.fromkeys(_name(point) for point in points):
        mine = [p for p in points if _name(p) == name]
        swept = len(mine) > 1
        axis.plot(
            [p.loss for p in mine],
            [p.mean_gap for p in mine],
            "o-" if swept else "D",
            color=lineup.COLOURS[name],
            label=lineup.TITLES[name] + (", λ fairness 0 → 20" if swept else ""),
            markersize=5 if swept else 8,
        )
        for point in mine:
            if point.lambda_fairness in MARKED.get(name, ()):
                side = (6, 4) if name == lineup.GAP.name else (-7, 0)  # below, the axis would be in the way
                axis.annotate(
                    f"{point.lambda_fairness:g}",
                    (point.loss, point.mean_gap),
                    textcoords="offset points",
                    xytext=side,
                    ha="left" if side[0] > 0 else "right",
                    va="bottom" if side[1] > 0 else "center",
                    fontsize=8,
                    color=lineup.COLOURS[name],
                )
    axis.axvline(limit, color="black", linestyle=":", linewidth=1, label="least loss of an exactly fair mixture")
    axis.set(
        title="What fairness costs (numbers are λ fairness, at λ regret = 1)",
        xlabel="wrong decisions per round",
        ylabel="mean of FPR gap and FNR gap",
    )
    axis.set_ylim(bottom=0)
    axis.legend(fontsize=9, loc="upper right")
    return figure


def gap_over_time(points: Ints, curves: Mapping[str, Floats], title: str, legend: str) -> Any:
    """The gap of all rounds so far; ``curves[name]`` is [point, run, y]."""
    figure, axes = canvas(1, 2, size=(10.5, 4.2), sharey=True)
    palette = ["#0b6e4f", "#c1440e", "#3a86c8", "#e0a030", "#7a6f9b", "#555555"]
    for colour, (name, values) in zip(palette, curves.items(), strict=False):
        for axis, y in ((axes[0], 0), (axes[1], 1)):
            mean, spread = np.nanmean(values[:, :, y], axis=1), np.nanstd(values[:, :, y], axis=1)
            axis.plot(points, mean, color=colour, label=name)
            if len(curves) <= 2:
                low, high = np.maximum(mean - spread, 0), mean + spread
                axis.fill_between(points, low, high, color=colour, alpha=0.15, lw=0)
    for axis, what in ((axes[0], "FPR gap"), (axes[1], "FNR gap")):
        axis.set(title=f"{what} so far, {title}", xlabel="rounds (log scale)", xscale="log")
        axis.set_ylim(bottom=0)
    axes[0].set_ylabel("difference between the groups")
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(
        handles, names, loc="outside lower center", ncols=len(names), fontsize=9, title=legend, title_fontsize=9
    )
    return figure


def real_gaps(rows: Sequence[RealRow], attainable: Mapping[str, Figure]) -> Any:
    """Worst gap and regret of every policy on every data set."""
    figure, axes = canvas(1, 2, size=(11, 4.4))
    sets = list(dict.fromkeys(row.dataset for row in rows))
    names = list(dict.fromkeys(_name(row) for row in rows))
    width = 0.8 / len(names)
    for i, name in enumerate(names):
        mine = [row for row in rows if _name(row) == name]
        at = np.arange(len(sets)) + (i - (len(names) - 1) / 2) * width
        for axis, figures in ((axes[0], [r.worst_gap for r in mine]), (axes[1], [r.regret for r in mine])):
            axis.bar(
                at,
                [f.mean for f in figures],
                width * 0.92,
                yerr=[f.std for f in figures],
                color=lineup.COLOURS[name],
                error_kw={"elinewidth": 1, "capsize": 2},
                label=lineup.TITLES[name],
            )
    for j, dataset in enumerate(sets):
        level = attainable[dataset].mean
        label = "attainable with these experts" if j == 0 else None
        axes[0].plot([j - 0.42, j + 0.42], [level, level], color="black", linewidth=1.6, label=label)
    axes[0].set(title="Worse of FPR and FNR gap", ylabel="difference between the groups", ylim=(0, None))
    axes[1].set(title="Regret", ylabel="loss beyond the best single expert, per round")
    axes[1].axhline(0, color="black", linewidth=0.8)
    for axis in axes:
        axis.set_xticks(np.arange(len(sets)), [s.capitalize() if s != "compas" else "COMPAS" for s in sets])
        axis.grid(axis="x", visible=False)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=9)
    return figure


def stress_gaps(rows: Sequence[StressRow]) -> Any:
    """Gap and loss of every scenario, as dots on one line each."""
    figure, axes = canvas(1, 2, size=(11.5, 0.34 * len(rows) + 1.4), sharey=True)
    for i, row in enumerate(rows):
        colour = lineup.COLOURS[_name(row)]
        for y, gap in enumerate(row.gaps):
            axes[0].errorbar(
                gap.mean, i, xerr=gap.std, fmt="osD"[y % 3], color=colour, markersize=5, capsize=2, elinewidth=0.8
            )
        axes[1].errorbar(
            row.loss.mean, i, xerr=row.loss.std, fmt="o", color=colour, markersize=5, capsize=2, elinewidth=0.8
        )
    axes[0].set_yticks(
        range(len(rows)),
        [f"{r.scenario}, {r.part} ({r.objective})".replace(", all (", " (") for r in rows],
        fontsize=9,
    )
    axes[0].invert_yaxis()
    axes[0].set(title="Gaps by true label (first ●, second ■, third ◆)", xlabel="worst pair of groups", xlim=(0, None))
    axes[1].set(title="Loss", xlabel="wrong decisions per round", xlim=(0, None))
    return figure
