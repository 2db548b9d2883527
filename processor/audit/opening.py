"""What the commands on records share: where to read, the seeds, and how partitions and heads are written."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from processor.config import Config
from processor.core.errors import InvalidInputError
from processor.operations.options import loaded
from processor.run.run_command import ConfigFile

from .replay.rules import Secrets
from .sources.source import Source, open_source
from .verify.audit import CodecOf

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

__all__ = ["ConfigFile", "OpenedSource", "Recording", "SeedFile", "head_lines", "opened", "partition_numbers"]


@dataclass(frozen=True)
class OpenedSource:
    source: Source
    secrets: Secrets
    config: Config | None
    where: str
    """in words"""

    @property
    def codec(self) -> CodecOf | None:
        return CodecOf(self.config) if self.config is not None and self.config.avro.registry else None


@contextmanager
def opened(recording: Sequence[Path] | None, config: Path | None, seed_file: Path | None) -> Iterator[OpenedSource]:
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


def partition_numbers(texts: Sequence[str]) -> tuple[int, ...] | None:
    """Partition numbers: "0,2,5-7".

    >>> partition_numbers(["0,2", "5-7"])
    (0, 2, 5, 6, 7)
    """
    found: set[int] = set()
    for part in (part for text in texts for part in text.split(",")):
        if not re.fullmatch(r"\s*\d{1,6}(-\d{1,6})?\s*", part):
            raise typer.BadParameter(f'"{part}" is no partition: write for instance 0,2,5-7')
        first, _, last = part.strip().partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(found)) or None


def head_lines(heads: list[str] | None) -> list[str]:
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
