"""Tables, JSON and charts of what was measured."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from .lines import PASS_THROUGH, PROCESSOR, Line
from .rounds import Collected, ratio

# Section 4 of the design: shares of a pass-through, on librdkafka's mock broker and a smaller stateful job.
DESIGN = {
    "msgspec": 0.58,
    "no-redis": 0.40,
    PROCESSOR: 0.38,
    "bytewax": 0.13,
    "quixstreams": 0.05,
    "pathway": 0.33,
}


def terminal() -> Console:
    """Wide enough for the tables where nobody looks at a terminal."""
    found = Console()
    return found if found.is_terminal else Console(width=150)


def machine() -> dict[str, Any]:
    """Where it ran, and how busy it was."""
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "load": round(os.getloadavg()[0], 2),
    }


def row(line: Line, found: Collected, limit: Collected) -> dict[str, Any]:
    """One line's figures."""
    share, least, most = ratio(found, limit)
    return {
        "key": line.key,
        "title": line.title,
        "guarantee": line.guarantee,
        "lacks": line.lacks,
        "failure": found.failure,
        "of_pass_through": share,
        "least": least,
        "most": most,
        "design": DESIGN.get(line.key),
        "rate": found.rate,
        "rates": found.rates,
        "cpu_us": found.cpu_each,
        "written": found.middle(lambda one: one.written),
        "peak_bytes": found.middle(lambda one: one.peak_bytes),
        "notes": {name: found.note(name) for name in ("early", "transactions", "store_seconds")},
    }


def throughput_table(rows: Sequence[Mapping[str, Any]], title: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("line")
    for name in (
        "of (a)",
        "spread",
        "design",
        "records/s",
        "CPU µs/record",
        "written/read",
        "early",
        "MB",
        "guarantee",
    ):
        table.add_column(name, justify="right")
    for one in rows:
        if not one["rates"]:
            table.add_row(one["title"], "–", one["failure"].splitlines()[0][:60] if one["failure"] else "")
            continue
        table.add_row(
            one["title"],
            f"{one['of_pass_through']:.2f}",
            f"{one['least']:.2f}–{one['most']:.2f}",
            f"{one['design']:.2f}" if one["design"] else "",
            f"{one['rate']:,.0f}",
            f"{one['cpu_us']:.1f}",
            f"{one['written']:.3f}",
            "" if one["notes"]["early"] is None else f"{one['notes']['early']:.0%}",
            f"{one['peak_bytes'] / 1e6:,.0f}",
            one["guarantee"],
        )
    return table


def sentences(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the table says, against the aims."""
    known = {one["key"]: one for one in rows if one["rates"]}
    ours = known.get(PROCESSOR)
    said = []
    if ours and PASS_THROUGH in known:
        said.append(f"gforce, exactly once: {ours['of_pass_through']:.2f} of the pass-through (aim 0.20, reach 0.33)")
    for name, aim in (("bytewax", 1.3), ("quixstreams", 3.0)):
        if ours and name in known:
            said.append(f"{ours['of_pass_through'] / known[name]['of_pass_through']:.2f} times {name} (aim {aim})")
    if ours and "no-redis" in known:
        said.append(f"with Redis {ours['rate'] / known['no-redis']['rate']:.2f} of the rate without")
    said += [
        f"{one['title']}: {one['of_pass_through']:.2f}, more than 20 % off the design's {one['design']}"
        for one in known.values()
        if one["design"] and abs(one["of_pass_through"] / one["design"] - 1) > 0.2
    ]
    said += [f"{one['title']} lacks: {one['lacks']}" for one in rows if one["lacks"]]
    return said


def write_json(file: Path | None, document: Mapping[str, Any]) -> None:
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        # msgspec writes NaN, which a line without a run has, as null.
        file.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")


def bars(rows: Sequence[Mapping[str, Any]], files: Path, title: str) -> None:
    """Shares of the pass-through with their spread, as PNG and SVG."""
    plt = _pyplot()
    shown = [one for one in rows if one["rates"]][::-1]
    figure, axes = plt.subplots(figsize=(8, 0.5 * len(shown) + 1.4))
    values = [one["of_pass_through"] for one in shown]
    spread = [[v - one["least"] for v, one in zip(values, shown, strict=True)]]
    spread.append([one["most"] - v for v, one in zip(values, shown, strict=True)])
    colours = ["#1f5fa8" if one["key"] == PROCESSOR else "#9db7d5" for one in shown]
    axes.barh([one["title"] for one in shown], values, xerr=spread, color=colours, ecolor="#555555", capsize=3)
    for number, one in enumerate(shown):
        axes.text(one["most"] + 0.015, number, f"{one['rate']:,.0f}/s", va="center", fontsize=8)
        if one["design"]:
            axes.plot([one["design"]] * 2, [number - 0.4, number + 0.4], color="#c0392b", linestyle=":")
    axes.set_xlim(0, max(one["most"] for one in shown) * 1.15)
    axes.set_xlabel("share of the pass-through's throughput (dotted: the design's figure)")
    axes.set_title(title, fontsize=10, loc="left")
    _save(figure, files)


def curves(
    series: Mapping[str, Sequence[tuple[float, float, float, float]]],
    files: Path,
    labels: tuple[str, str, str],
    log: bool = True,
) -> None:
    """Lines with spread (x, median, least, most); ``labels`` are those of x, of y, and the title."""
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(7, 4))
    for name, points in series.items():
        x, middle, least, most = zip(*points, strict=True)
        axes.plot(x, middle, marker="o", label=name)
        axes.fill_between(x, least, most, alpha=0.2)
    if log:
        axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.set_title(labels[2], fontsize=10, loc="left")
    axes.grid(alpha=0.3)
    if len(series) > 1:
        axes.legend()
    _save(figure, files)


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def _save(figure: Any, files: Path) -> None:
    files.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    for kind in (".png", ".svg"):
        figure.savefig(files.with_suffix(kind), dpi=130)
    figure.clear()


def said(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True, markup=False)
