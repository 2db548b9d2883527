"""What the commands on records share: the options, the opened source with its seeds, and progress bars."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from processor.config import Config
from processor.core.errors import InvalidInputError
from processor.operations.options import loaded
from processor.ports.codec import Codec
from processor.run.run_command import ConfigFile
from processor.terminal import terminal

from .replay.recorded_settings import Secrets
from .sources.source import Role, Source, open_source

if TYPE_CHECKING:
    from rich.progress import Progress

Recording = Annotated[
    list[Path] | None,
    typer.Argument(
        help="A recording's folder, or files in the shape of `kcat -J`. \\[default: Kafka itself, as --config says]"
    ),
]
SeedFile = Annotated[
    Path | None,
    typer.Option(
        "--seed-file",
        help='Seeds: TOML with seed = "…" (the processor\'s) and \\[tenants] with name = "…"; or one seed alone. '
        "\\[default: those of --config and of the environment, GFORCE_PROCESSING__SEED]",
        exists=True,
    ),
]

__all__ = ["ConfigFile", "OpenedSource", "Recording", "SeedFile", "open_record", "parse_partitions", "read_head_lines"]
INPUT_ROLES: tuple[Role, ...] = ("requests", "feedback")


@dataclass(frozen=True)
class CodecFactory:
    """Creates the codec for other formats than JSON, in every process again."""

    config: Config

    def __call__(self) -> Codec | None:
        from processor.run.assembly import codec_of

        return codec_of(self.config)


@dataclass(frozen=True)
class OpenedSource:
    source: Source
    secrets: Secrets
    config: Config | None
    where: str
    """in words"""

    @property
    def codec(self) -> CodecFactory | None:
        return CodecFactory(self.config) if self.config is not None and self.config.avro.registry else None


@contextmanager
def open_record(
    recording: Sequence[Path] | None, config: Path | None, seed_file: Path | None
) -> Iterator[OpenedSource]:
    """A record to read, and the seeds that were given for it. Without a recording it is read from Kafka."""
    secrets = Secrets.of_file(seed_file) if seed_file else Secrets()
    settings: Config | None = None
    if config is not None or not recording or "GFORCE_PROCESSING__SEED" in os.environ:
        settings, seed_missing = loaded(config)
        secrets += Secrets.of_config(settings, seedless=seed_missing is not None)
    if recording:
        names = settings.topics.full() if settings else None
        with open_source(recording, names) as source:  # type: ignore[arg-type]
            yield OpenedSource(source, secrets, settings, " ".join(map(str, recording)))
        return
    from processor.run.assembly import client_properties

    from .sources.cluster import KafkaSource

    assert settings is not None
    properties = client_properties(settings)
    found = KafkaSource(properties, settings.topics.full(), settings.kafka.group)  # type: ignore[arg-type]
    yield OpenedSource(found, secrets, settings, f"Kafka at {settings.kafka.bootstrap_servers}")


def parse_partitions(texts: Sequence[str]) -> tuple[int, ...] | None:
    """Partition numbers: "0,2,5-7".

    >>> parse_partitions(["0,2", "5-7"])
    (0, 2, 5, 6, 7)
    """
    found: set[int] = set()
    for part in (part for text in texts for part in text.split(",")):
        if not re.fullmatch(r"\s*\d{1,6}(-\d{1,6})?\s*", part):
            raise typer.BadParameter(f'"{part}" is no partition: write for instance 0,2,5-7')
        first, _, last = part.strip().partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(found)) or None


def read_head_lines(heads: list[str] | None) -> list[str]:
    """Heads as given, or the lines of the files that were given instead."""
    found: list[str] = []
    for text in heads or ():
        path = Path(text)
        if "=" in text and not path.is_file():
            found.append(text)
            continue
        try:
            lines = path.read_text().splitlines()
        except OSError as error:
            raise InvalidInputError(f"the file of heads {text} cannot be read: {error.strerror}") from None
        found += [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return found


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """A display of bars, removed at the end."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=terminal(stderr=True), transient=True) as progress:
        yield progress


@contextmanager
def progress_bar(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """One bar; yields a callback that advances it."""
    with progress_bars() as progress:
        task = progress.add_task(what, total=total)
        yield lambda steps: progress.advance(task, steps)


@contextmanager
def input_progress(source: Source, partitions: tuple[int, ...] | None = None) -> Iterator[Callable[[int], None]]:
    """One bar; yields a callback for the number of input records read."""
    with progress_bars() as progress:
        task = progress.add_task("input records", total=count_inputs(source, partitions))
        yield lambda read: progress.update(task, completed=read)


@contextmanager
def step_progress(source: Source) -> Iterator[Callable[[str], Callable[[int], None]]]:
    """A bar for each step; every step reads all input records."""
    total = count_inputs(source)
    with progress_bars() as progress:

        def step(what: str) -> Callable[[int], None]:
            task = progress.add_task(what, total=total)
            return lambda read: progress.update(task, completed=read)

        yield step


def count_inputs(source: Source, partitions: tuple[int, ...] | None = None) -> int | None:
    """About how many input records there are: offsets covered, where that is known."""
    total = 0
    for role in INPUT_ROLES:
        for number in source.partitions(role) if partitions is None else partitions:
            bounds = source.bounds(role, number)
            if bounds is None:
                return None
            total += bounds[1] - bounds[0]
    return total
