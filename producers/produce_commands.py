"""``gforce produce``: fill the inputs with a stream, to try things or to put load on them."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from processor.operations.options import CODES, AsJson
from processor.run.run_command import ConfigFile

if TYPE_CHECKING:
    from .stream import Case, Event, Traffic

app = typer.Typer(
    name="produce",
    help="Produce requests and late labels into the topics of the configuration, or as JSON lines into a file.",
    no_args_is_help=True,
)

STANDARD_OUTPUT = Path("-")
AT_ONCE = 1_000
"""Lines written together."""

Rate = Annotated[float, typer.Option(min=0.0, help="Cases per second; 0 is as fast as possible.")]
LabelDelay = Annotated[
    str,
    typer.Option(
        help="When labels come, in milliseconds: none, fixed:3000, uniform:0-2000 or geometric:500. With --rate 0 "
        "only the order follows from it, as if 1000 cases came in a second."
    ),
]
Share = typer.Option(min=0.0, max=1.0)
Lost = Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of labels that never come.")]
Repeated = Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of requests and labels sent twice.")]
Contradicting = Annotated[
    float, typer.Option(min=0.0, max=1.0, help="Share of labels followed by the other label: dead letters.")
]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same cases.")]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="Write JSON lines that gforce run --embedded reads to this file, or to standard output if it is -, and "
        "send nothing: no broker and no configuration is needed. --rate then says only when things happen.",
    ),
]
Run = Annotated[str | None, typer.Option("--run", help="Start of every decision id. \\[default: at random]")]


@app.command("synthetic", epilog=CODES)
def synthetic(
    config: ConfigFile = None,
    count: Annotated[int, typer.Option(min=1, help="How many cases.")] = 10_000,
    rate: Rate = 0.0,
    tenants: Annotated[int, typer.Option(min=1, help="tenant-0 and on.")] = 4,
    groups: Annotated[int, typer.Option(min=1, max=32, help="A, B, … of falling size and base rate.")] = 2,
    experts: Annotated[int, typer.Option(min=1, max=64, help="Each good at one group and label.")] = 4,
    shift: Annotated[
        str | None,
        typer.Option(
            metavar="START-END",
            help="Between these cases the last group's base rates are turned round and one expert errs on a quarter "
            "of its positive cases: something to be alerted to.",
        ),
    ] = None,
    delay: LabelDelay = "geometric:500",
    lost: Lost = 0.0,
    duplicates: Repeated = 0.0,
    contradicting: Contradicting = 0.0,
    seed: Seed = 1,
    run: Run = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """A synthetic population whose experts are each good at one group and label: the paper's, with more of all.

    Labels are "false" and "true", as in \\[tenants.default]. Records carry the tenant as key and go where Java's
    partitioner puts it. Without Kafka: gforce produce synthetic --out - | gforce run --embedded
    """
    from .stream import population, synthetic_cases
    from .synthetic import Shift

    people = population(groups, experts)
    cases = synthetic_cases(people, tenants, count, seed, Shift.parse(shift, people) if shift else None)
    traffic = _traffic(run, rate, delay, lost, duplicates, contradicting, seed)
    _produce(cases, count, traffic, config, out, as_json)


@app.command("dataset", epilog=CODES)
def dataset(
    name: Annotated[str, typer.Argument(help="adult, compas or german.")],
    data_dir: Annotated[Path, typer.Option(help="Folder with the files as their authors publish them.")],
    config: ConfigFile = None,
    count: Annotated[int | None, typer.Option(min=1, help="At most so many cases. \\[default: the paper's]")] = None,
    tenant: Annotated[str | None, typer.Option(help="\\[default: the data set's name]")] = None,
    rate: Rate = 0.0,
    delay: LabelDelay = "geometric:500",
    lost: Lost = 0.0,
    duplicates: Repeated = 0.0,
    contradicting: Contradicting = 0.0,
    seed: Seed = 1,
    run: Run = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """A real data set: five experts are trained on one part and asked about the rest, case by case.

    The favourable or predicted class is "true". Needs the experiments extra: pip install "gforce\\[experiments]".
    Without Kafka: gforce produce dataset adult --data-dir data --out - | gforce run --embedded
    """
    from processor.experiments.experts import EXPERTS, predictions

    from .datasets import load
    from .stream import cases

    data = load(name, data_dir)
    split = predictions(data, seed)
    total = min(count or len(split.label), len(split.label))
    groups = [data.group_names[index] for index in split.group[:total]]
    stream = cases([tenant or name] * total, groups, split.label[:total], split.predictions[:total], list(EXPERTS))
    traffic = _traffic(run, rate, delay, lost, duplicates, contradicting, seed)
    _produce(stream, total, traffic, config, out, as_json)


def _traffic(
    run: str | None, rate: float, delay: str, lost: float, repeated: float, contradicting: float, seed: int
) -> Traffic:
    from .delays import Delay
    from .stream import Traffic

    late = Delay.parse(delay)
    return Traffic(
        run=run or secrets.token_hex(4),
        rate=rate,
        delay=replace(late, lost=lost) if lost else late,
        repeated=repeated,
        contradicting=contradicting,
        seed=seed,
    )


def _produce(
    stream: Iterator[Case], total: int, traffic: Traffic, config: Path | None, out: Path | None, as_json: bool
) -> None:
    from processor.operations.operator_output import document, say

    from .stream import scheduled

    if config and out:
        raise typer.BadParameter("--config says where Kafka is, and with --out nothing is sent there: leave one out")
    events = scheduled(stream, traffic)
    counts = _write(events, out) if out else _send(events, total, traffic.rate > 0, config)
    if as_json:
        document({"run": traffic.run, **counts}, stderr=bool(out))
    else:
        told = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        say(f"{traffic.run}: {told}", stderr=bool(out))


def _write(events: Iterator[Event], path: Path) -> Counter[str]:
    """As lines; how many of each kind, up to the end or until nobody reads them."""
    from processor.embedded.line_files import OutputClosedError, written_to

    from .stream import line_of

    counts: Counter[str] = Counter()
    with written_to(None if path == STANDARD_OUTPUT else path, "--out") as out, suppress(OutputClosedError):
        while some := list(islice(events, AT_ONCE)):
            out.write(b"".join(map(line_of, some)))
            counts.update(event.kind for event in some)
    return counts


def _send(events: Iterator[Event], total: int, paced: bool, config: Path | None) -> Counter[str]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from processor.adapters.kafka.sender import KafkaSender
    from processor.operations.options import loaded
    from processor.run.assembly import client_properties, topics_of

    from .stream import Input, play

    settings, _ = loaded(config)
    topics = topics_of(settings)
    sender = KafkaSender(client_properties(settings, settings.kafka.producer_properties.reveal()))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        cases = progress.add_task("requests", total=total)

        def sent(event: Event) -> None:
            if event.kind == "request":
                progress.advance(cases)

        names: dict[Input, str] = {"requests": topics.requests, "feedback": topics.feedback}
        return play(events, sender, names, paced, sent)
