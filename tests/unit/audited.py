"""Records to be audited, ways to find and change a word of them, and what the audit then says."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest
from msgspec.structs import replace

from processor import config as configuration
from processor.audit.replay.findings import Finding
from processor.audit.replay.recorded_settings import Secrets
from processor.audit.sources.source import Role
from processor.audit.verify.audit import Audit, audit
from processor.audit.verify.result import AuditOptions
from processor.config import Config
from processor.ports.log import Record
from tests.recordings.stream import SHAPES, MemorySource, Running, events

CONFIG = Path(__file__).parents[1] / "recordings" / "gforce.toml"
TENANTS = ("bank", "shop", "lender", "clinic")


def load(**changed: str) -> Config:
    environment = {f"GFORCE_{name}": value for name, value in changed.items()}
    return configuration.load(CONFIG, environment)


def stricter(tmp: Path) -> Path:
    """The same configuration, but for how much fairness counts with the bank, and another shadow."""
    text = CONFIG.read_text().replace('shadows = ["groupaware", "mw"]', 'shadows = ["groupaware"]\nlambda = 3.0')
    path = tmp / "stricter.toml"
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> MemorySource:
    """400 requests, the configuration changed in the middle."""
    running = Running(load(), 2)
    stream = events(SHAPES, 400, seed=3)
    middle = len(stream) // 2
    running.feed(stream[:middle])
    running.restart(configuration.load(stricter(tmp_path_factory.mktemp("config")), {}))
    running.feed(stream[middle:])
    return running.source()


@pytest.fixture(scope="module")
def alerted() -> MemorySource:
    """One tenant whose groups are treated very differently."""
    running = Running(load(), 1)
    running.feed(events({"bank": dataclasses.replace(SHAPES["bank"], late=(500,), labelled=1.0)}, 350, seed=4))
    return running.source()


@pytest.fixture
def source(recorded: MemorySource) -> MemorySource:
    return deepcopy(recorded)


SEEDS = Secrets.of_config(load())


def run(source: MemorySource, secrets: Secrets = SEEDS, start: int | None = None, **heads: str) -> Audit:
    kept = {int(name.removeprefix("p")): text for name, text in heads.items()}
    return audit(source, AuditOptions(secrets, kept, start), processes=1)


def only(found: Audit, kind: str) -> Finding:
    """The one finding of a kind."""
    return next(finding for finding in found.findings if finding.kind == kind)


def place(source: MemorySource, role: Role, wanted: Callable[[Record], bool], skip: int = 20) -> tuple[int, int]:
    """Partition and index of a record, somewhere in the middle."""
    for number in source.partitions(role):
        for index, record in enumerate(source.records[role, number]):
            if index >= skip and wanted(record):
                return number, index
    raise LookupError(f"no such record in {role}")


def changed(record: Record, **fields: object) -> Record:
    """The record with some fields of its JSON replaced, written as the producer writes it."""
    document = {**json.loads(record.value or b""), **fields}
    return replace(record, value=json.dumps(document, separators=(",", ":")).encode())


def is_request(record: Record) -> bool:
    return b'"predictions"' in (record.value or b"") and b"stranger" not in (record.value or b"")


def is_label(record: Record) -> bool:
    return b'"label"' in (record.value or b"") and b"stranger" not in (record.value or b"")
