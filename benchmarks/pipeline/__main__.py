"""``python -m benchmarks.pipeline``: how fast the processor is, beside the limit and its peers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from . import growth, latency, profile, recovery, report
from .children import end_in_order
from .lines import old_line
from .peers import peer_lines
from .throughput import measure_lines
from .timing import StuckError
from .workload import Shape

app = typer.Typer(
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="How fast the processor is, on a real Kafka broker and a real Redis that are started on loopback and ended "
    "again. Without a subcommand: throughput. KAFKA_BOOTSTRAP and REDIS_URL use servers that run already.",
    epilog="Compare ratios, not rates: they hold on another machine. For figures worth keeping leave the machine alone "
    "while it runs; the load average is in the output.",
)
app.command("latency")(latency.measure)
app.add_typer(growth.app, name="growth")
app.command("recovery")(recovery.measure)
app.command("profile")(profile.measure)


@app.command()
def throughput(
    records: Annotated[int, typer.Option(min=1_000, help="half requests, half labels")] = 400_000,
    rounds: Annotated[int, typer.Option(min=1, help="each line once in every round, in turn")] = 3,
    late: Annotated[int, typer.Option(min=0, help="requests between a request and its label")] = 40_000,
    tenants: int = 100,
    experts: int = 5,
    partitions: int = 4,
    peers: Annotated[
        bool,
        typer.Option(
            "--peers", help="also Bytewax, Quix Streams, Pathway and Kafka Streams, each in an environment of its own"
        ),
    ] = False,
    two_threads: Annotated[
        bool, typer.Option("--two-threads", help="with --peers: also Kafka Streams with two stream threads")
    ] = False,
    old: Annotated[
        list[Path] | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="also the gforce of another checkout (repeatable), with the Python of its .venv or else with this one",
        ),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="a line by its key (repeatable); the pass-through always runs")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures here")] = None,
    chart: Annotated[Path | None, typer.Option(help="draw them: NAME.png and NAME.svg")] = None,
) -> None:
    """Records per second through a backlog, every line in turn, as shares of a pass-through that does nothing.

    Keys for --only: pass-through transactional msgspec processor no-redis embedded; with --peers also bytewax
    quixstreams pathway kafka-streams-memory kafka-streams-rocksdb, and the last two with
    -two-threads after them.

    A run is timed from the first progress seen from outside (offsets of the group, or of the output) to the last
    record, so starting up is left out. Quick: --records 80000 --late 20000 --rounds 1. Peers are installed into
    $GFORCE_CACHE/peers or ~/.cache/gforce/peers on first use; one that cannot be had is reported and left out.
    """
    console = report.terminal()
    shape = Shape(cases=records // 2, late=late, tenants=tenants, experts=experts)
    try:
        earlier = [old_line(checkout) for checkout in old or ()]
    except StuckError as problem:
        raise typer.BadParameter(str(problem)) from None
    extra = [*earlier, *(peer_lines(console, only or (), two_threads) if peers else ())]
    measure_lines(shape, partitions, rounds, extra, only or (), json_file, chart, console)


def main() -> None:
    names = {"throughput", "latency", "growth", "recovery", "profile", "--help"}
    if not set(sys.argv[1:2]) & names:
        sys.argv.insert(1, "throughput")
    end_in_order()
    app(prog_name="python -m benchmarks.pipeline")


if __name__ == "__main__":
    main()
