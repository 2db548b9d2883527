"""``manifest.json``: what a recording holds, and what it must weigh."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from .line_files import Compression
from .source import MANIFEST, RecordingError, Role

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

MANIFEST_FORM = 1
_HASH_READ_BYTES = 1 << 20


class FileEntry(msgspec.Struct, kw_only=True):
    """One file: its first ``bytes`` bytes count, a longer one has a tail that was being written when we were killed."""

    name: str
    """relative to the manifest"""
    records: int
    first: int
    last: int
    bytes: int
    sha256: str


class RangeEntry(msgspec.Struct, kw_only=True):
    """What is recorded of one topic partition: every committed record from ``start`` up to (not including) ``end``,
    but for the ``gaps``."""

    role: Role
    topic: str
    partition: int
    start: int
    end: int
    target: int
    """where the run that wrote this meant to get; beyond ``end`` if it was stopped"""
    files: list[FileEntry] = []
    gaps: list[tuple[int, int]] = []
    """offsets [first, end) that are not here: of the changelog, which is trimmed behind snapshots, those that were gone
    when the recording was gone on with; of an input, those that could not be read and an operator had skipped"""

    @property
    def records(self) -> int:
        return sum(file.records for file in self.files)


class AnchorEntry(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Identities of a partition's state, as text."""

    committed: str = ""
    """of the group's commit metadata when the recording was made; empty where the recording stops earlier"""
    head: str = ""
    """of the last journal record in the recording"""


class RecordingRequest(msgspec.Struct, kw_only=True):
    """What a recording was asked to hold; going on with it means asking the same, but for ``until``."""

    roles: list[Role]
    partitions: list[int] | None
    since: list[str]
    until: list[str]
    compression: Compression


class Manifest(msgspec.Struct, kw_only=True):
    """All of it."""

    form: int = MANIFEST_FORM
    version: str
    created: str
    finished: str | None
    """None while it is being written, or if that was interrupted"""
    cluster: str
    group: str
    prefix: str
    """of the topics' names"""
    asked: RecordingRequest
    anchors: dict[int, AnchorEntry] = {}
    ranges: list[RangeEntry] = []

    @property
    def records(self) -> int:
        return sum(one.records for one in self.ranges)

    def range_of(self, role: Role, partition: int) -> RangeEntry | None:
        return next((one for one in self.ranges if one.role == role and one.partition == partition), None)


def load(folder: Path) -> Manifest:
    path = folder / MANIFEST
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except OSError as problem:
        raise RecordingError(f"{path} cannot be read: {problem.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise RecordingError(f"{path} is not the manifest of a recording: {problem}") from None
    if found.form != MANIFEST_FORM:
        raise RecordingError(
            f"{path} is of form {found.form} and this version reads {MANIFEST_FORM}: use a later version"
        )
    for one in found.ranges:
        for file in one.files:
            file_inside(folder, file.name)
    return found


def file_inside(folder: Path, name: str) -> Path:
    """A file of the recording; a manifest from elsewhere must not lead anywhere else."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise RecordingError(f'{folder / MANIFEST} names the file "{name}", which is outside of the recording')
    return path


def save(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest at once, and durably: it may never name bytes that are not on disk."""
    path, fresh = folder / MANIFEST, folder / f".{MANIFEST}.new"
    with fresh.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def manifest_digest(folder: Path) -> str:
    """SHA-256 of the manifest: kept elsewhere, it vouches for the whole recording."""
    return sha256((folder / MANIFEST).read_bytes()).hexdigest()


def hash_file(path: Path, length: int) -> Hash:
    """The hash of a file's first bytes, to go on with."""
    total, left = sha256(), length
    with path.open("rb") as file:
        while left and (data := file.read(min(left, _HASH_READ_BYTES))):
            total.update(data)
            left -= len(data)
    return total


class ManifestProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Something about a recording that is not as its manifest says."""

    topic: str
    partition: int
    file: str
    offsets: tuple[int, int]
    """which lie in that file, or should"""
    text: str


def verify_manifest(folder: Path) -> list[ManifestProblem]:
    """Compare every file with the manifest. Empty if all is as it was recorded; what is in it is the audit's."""
    manifest = load(folder)
    found = [problem for one in manifest.ranges for problem in _range_problems(folder, one)]
    known = {file.name for one in manifest.ranges for file in one.files}
    for path in sorted(folder.rglob("*.jsonl*")):
        name = path.relative_to(folder).as_posix()
        if name not in known:
            found.append(
                ManifestProblem(topic="", partition=-1, file=name, offsets=(-1, -1), text="is not in the manifest")
            )
    return found


def _range_problems(folder: Path, one: RangeEntry) -> list[ManifestProblem]:
    def problem(text: str, name: str = "", offsets: tuple[int, int] | None = None) -> ManifestProblem:
        place = offsets or (one.start, one.end)
        return ManifestProblem(topic=one.topic, partition=one.partition, file=name, offsets=place, text=text)

    found = []
    if one.end < one.target:
        found.append(problem(f"was stopped at offset {one.end} and should go to {one.target}: record it again"))
    last = one.start - 1
    for file in one.files:
        if not last < file.first <= file.last < one.end:
            found.append(problem("does not follow the file before", file.name, (file.first, file.last)))
        last = file.last
        if text := _file_problem(folder / file.name, file):
            found.append(problem(text, file.name, (file.first, file.last)))
    return found


def _file_problem(path: Path, file: FileEntry) -> str:
    if not path.is_file():
        return "is missing"
    if (size := path.stat().st_size) != file.bytes:
        return f"has {size} bytes and should have {file.bytes}"
    if hash_file(path, file.bytes).hexdigest() != file.sha256:
        return "has another content than was recorded (SHA-256 differs)"
    return ""
