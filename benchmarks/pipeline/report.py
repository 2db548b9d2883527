"""Tables, JSON and charts of what was measured."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from processor.core import native

from .lines import OLD, PROCESSOR, Line
from .rounds import Collected, ratio, ratio_of_rates

# Section 4 of the design: shares of a pass-through, on librdkafka's mock broker and a smaller stateful job.
DESIGN = {
    "msgspec": 0.58,
    "no-redis": 0.40,
    PROCESSOR: 0.38,
    "bytewax": 0.13,
    "quixstreams": 0.05,
    "pathway": 0.33,
}
STREAMS = "kafka-streams-"
AIMS: dict[str, float | None] = {
    "bytewax": 2.0,
    "quixstreams": 3.0,
    "pathway": 1.0,
    f"{STREAMS}memory": 1.3,
    f"{STREAMS}rocksdb": None,
}
AIMS |= {f"{STREAMS}memory-two-threads": None, f"{STREAMS}rocksdb-two-threads": None}
"""how many times as fast as each peer we want to be; None where it is only said"""
OLD_AIM = 1.4


def terminal() -> Console:
    """Wide enough for the tables where nobody looks at a terminal."""
    found = Console()
    return found if found.is_terminal else Console(width=150)


def machine() -> dict[str, Any]:
    """Where it ran, and how busy it was."""
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "tier": native.tier(),
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
        "steady_rate": median(one.rate for one in found.steady) if found.steady else None,
        "steady_rates": [one.rate for one in found.steady],
        "cpu_us": found.cpu_each,
        "steady_cpu_us": median(one.cpu / one.records for one in found.steady) * 1e6 if found.steady else None,
        "redis_cpu_us": found.server_cpu_each("Redis"),
        "broker_cpu_us": found.server_cpu_each("broker"),
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
        "steady",
        "CPU",
        "Redis",
        "broker",
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
            _number(one["steady_rate"], ",.0f"),
            f"{one['cpu_us']:.1f}",
            _number(one["redis_cpu_us"], ".1f"),
            _number(one["broker_cpu_us"], ".1f"),
            f"{one['written']:.3f}",
            "" if one["notes"]["early"] is None else f"{one['notes']['early']:.0%}",
            f"{one['peak_bytes'] / 1e6:,.0f}",
            one["guarantee"],
        )
    return table


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def sentences(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the table says, against the aims."""
    known = {one["key"]: one for one in rows if one["rates"]}
    ours = known.get(PROCESSOR)
    said = []
    if ours:
        said.append(f"gforce, exactly once: {ours['of_pass_through']:.2f} of the pass-through (aim 0.33, reach 0.45)")
        said += [_times(ours, known[key], aim) for key, aim in AIMS.items() if key in known]
        said += [_times(ours, one, OLD_AIM) for key, one in known.items() if key.startswith(OLD)]
        said += [_cpu(one) for key, one in known.items() if key == PROCESSOR or key.startswith((OLD, STREAMS))]
    if ours and "no-redis" in known:
        said.append(f"with Redis {ours['rate'] / known['no-redis']['rate']:.2f} of the rate without")
    said += [
        f"{one['title']}: {one['of_pass_through']:.2f}, more than 20 % off the design's {one['design']}"
        for one in known.values()
        if one["design"] and abs(one["of_pass_through"] / one["design"] - 1) > 0.2
    ]
    lacks: dict[str, list[str]] = {}
    for one in rows:
        if one["lacks"]:
            lacks.setdefault(one["lacks"], []).append(one["title"])
    said += [f"{'; '.join(titles)} – lacks: {text}" for text, titles in lacks.items()]
    return said


def _times(ours: Mapping[str, Any], other: Mapping[str, Any], aim: float | None) -> str:
    """How many times as fast as another line, of the whole run and of the steady part."""
    found = f"{_ratio(ours['rates'], other['rates'])} times {other['title']}"
    if ours["steady_rates"] and other["steady_rates"]:
        found += f"; steady part {_ratio(ours['steady_rates'], other['steady_rates'])}"
    return found if aim is None else f"{found} (aim {aim})"


def _ratio(ours: Sequence[float], others: Sequence[float]) -> str:
    middle, least, most = ratio_of_rates(ours, others)
    return f"{middle:.2f} ({least:.2f}–{most:.2f})"


def _cpu(one: Mapping[str, Any]) -> str:
    """CPU time for each record, with the share of the servers that hold its state: the broker, and Redis for us."""
    steady = one["steady_cpu_us"]
    process = "of the process" if steady is None else f"of the process (steady part {steady:.1f})"
    parts = [(process, one["cpu_us"]), ("of the broker", one["broker_cpu_us"])]
    if not one["key"].startswith(STREAMS):
        parts.insert(1, ("of Redis", one["redis_cpu_us"]))
    known = [(name, value) for name, value in parts if value is not None]
    total = sum(value for _, value in known)
    return f"CPU µs for each record, {one['title']}: {' + '.join(f'{v:.1f} {name}' for name, v in known)} = {total:.1f}"


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
