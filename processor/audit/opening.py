"""What the commands on records share: where to read, and the seeds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from processor.runtime.commands import ConfigFile
from processor.runtime.config import Config
from processor.runtime.operator_options import loaded

from .audit import CodecOf
from .rules import Secrets
from .sources import Source, open_source

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

__all__ = ["ConfigFile", "Opened", "Recording", "SeedFile", "opened"]


@dataclass(frozen=True)
class Opened:
    source: Source
    secrets: Secrets
    config: Config | None
    where: str
    """in words"""

    @property
    def codec(self) -> CodecOf | None:
        return CodecOf(self.config) if self.config is not None and self.config.avro.registry else None


@contextmanager
def opened(recording: Sequence[Path] | None, config: Path | None, seed_file: Path | None) -> Iterator[Opened]:
    """A record to read, and the seeds that were given for it. Without a recording it is read from Kafka."""
    secrets = Secrets.of_file(seed_file) if seed_file else Secrets()
    settings: Config | None = None
    if config is not None or not recording or "GFORCE_PROCESSING__SEED" in os.environ:
        settings, seed_missing = loaded(config)
        secrets += Secrets.of_config(settings, seedless=seed_missing is not None)
    if recording:
        names = settings.topics.full() if settings else None
        with open_source(recording, names) as source:  # type: ignore[arg-type]
            yield Opened(source, secrets, settings, " ".join(map(str, recording)))
        return
    from processor.runtime.assembly import client_properties

    from .kafka_source import KafkaSource

    assert settings is not None
    properties = client_properties(settings)
    found = KafkaSource(properties, settings.topics.full(), settings.kafka.group)  # type: ignore[arg-type]
    yield Opened(found, secrets, settings, f"Kafka at {settings.kafka.bootstrap_servers}")
