"""Writing a record in memory to files: a recording with its manifest, or plain files as ``kcat -J`` makes them."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from processor import __version__
from processor.audit.sources.line_files import Compression, compress, encode_lines, record_line
from processor.audit.sources.manifest import AnchorEntry, FileEntry, Manifest, RangeEntry, RecordingRequest, save
from processor.audit.sources.source import ROLES

from .stream import MemorySource


def write_recording(source: MemorySource, folder: Path, compression: Compression = "none") -> None:
    """One file for each topic partition."""
    folder.mkdir(parents=True, exist_ok=True)
    ranges = []
    for (role, number), records in sorted(source.records.items()):
        topic = source.topic(role)
        name = f"{topic}-{number}.jsonl" + (".zst" if compression == "zstd" else "")
        data = encode_lines(record_line(record) for record in records)
        data = data if compression == "none" else compress(data, compression)
        start, end = source.limits.get((role, number), (0, 0))
        files = []
        if records:
            (folder / name).write_bytes(data)
            files = [
                FileEntry(
                    name=name,
                    records=len(records),
                    first=records[0].offset,
                    last=records[-1].offset,
                    bytes=len(data),
                    sha256=sha256(data).hexdigest(),
                )
            ]
        entry = RangeEntry(role=role, topic=topic, partition=number, start=start, end=end, target=end, files=files)
        entry.gaps = source.gaps(role, number) or []
        ranges.append(entry)
    asked = RecordingRequest(roles=list(ROLES), partitions=None, since=[], until=[], compression=compression)
    manifest = Manifest(
        version=__version__,
        created="2023-11-14T22:13:20Z",
        finished="2023-11-14T22:13:20Z",
        cluster="in memory",
        group="gforce",
        prefix="",
        asked=asked,
        anchors={number: AnchorEntry(committed=text) for number, text in source.anchors.items()},
        ranges=ranges,
    )
    save(folder, manifest)


def write_plain(source: MemorySource, folder: Path) -> list[Path]:
    """A file for each topic, its partitions in a mixture; no manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for role in ROLES:
        records = [r for (there, _), kept in source.records.items() if there == role for r in kept]
        path = folder / f"{source.topic(role)}.jsonl"
        path.write_bytes(
            encode_lines(record_line(record) for record in sorted(records, key=lambda r: (r.offset, r.partition)))
        )
        paths.append(path)
    return paths
