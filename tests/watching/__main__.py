"""``python -m tests.watching``: a drift on a live stream, and who notices it when."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tests.servers import broker, prometheus_server, redis_server
from tests.servers.broker import Broker
from tests.servers.redis_server import RedisServer

from .scenario import Plan, watched
from .timeline import Timeline


def watching(
    before: Annotated[int, typer.Option(min=10, help="seconds before the shift")] = Plan.before,
    shifted: Annotated[int, typer.Option(min=5, help="seconds it lasts")] = Plan.shifted,
    after: Annotated[int, typer.Option(min=10, help="seconds after it")] = Plan.after,
    rate: Annotated[int, typer.Option(min=50, help="cases per second of each of the two tenants")] = Plan.rate,
    seed: int = Plan.seed,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the time line and the figures here")] = None,
) -> None:
    """Shift one tenant's base rates and one expert's quality on a live stream, and watch the alerts come and go."""
    console = Console()
    for reason in (broker.available(), redis_server.available(), prometheus_server.available()):
        if reason is not None:
            console.print(f"cannot run: {reason}. Remedy: tests/setup_system.sh as root (Debian)")
            raise typer.Exit(2)
    timeline = Timeline(console)
    folder = Path(tempfile.mkdtemp(prefix="gforce-watching-"))
    with Broker() as kafka, RedisServer(own=redis_server.binary() is not None) as redis:
        plan = Plan(before, shifted, after, rate, seed)
        figures = watched(kafka.bootstrap, redis.url, folder, plan, timeline, console.print)
    timeline.print_checks()
    for name, value in figures.items():
        unit = "pairs" if name.endswith("pairs") else "s"
        console.print(f"{name.replace('_', ' ')}: {'never' if value is None else f'{value:g} {unit}'}", highlight=False)
    console.print(f"logs: {folder}", style="dim")
    if json_file is not None:
        json_file.write_bytes(timeline.encode(figures))
    raise typer.Exit(0 if timeline.passed else 1)


if __name__ == "__main__":
    typer.run(watching)
