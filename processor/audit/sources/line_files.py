"""The lines of a recording: one JSON object per record, in the shape that ``kcat -J`` prints.

Bytes that are not UTF-8 have no place in JSON. Our own recordings carry them in base64, beside the names kcat knows.
kcat itself writes them as they are, which no JSON parser takes; read as Latin-1 they come back unharmed, because kcat
escapes nothing beyond ASCII.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any, Literal, get_args

import msgspec
import zstandard
from msgspec import UNSET, UnsetType

from processor.core.errors import GForceError
from processor.ports.log import Headers, Record

from .source import RecordingError

Compression = Literal["zstd", "gzip", "none"]
COMPRESSIONS: tuple[Compression, ...] = get_args(Compression)
FILE_SUFFIXES: dict[Compression, str] = {"zstd": ".jsonl.zst", "gzip": ".jsonl.gz", "none": ".jsonl"}

READ_BYTES = 1 << 18
COMPRESSED_READ_BYTES = 1 << 14
"""bytes of compressed input at a time, which bounds the size after decompression"""
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE_MAGIC = b"\x2a\x4d\x18"
"""bytes 1 to 3 of a zstd frame that holds no data, as `pzstd` writes first"""
_GZIP_MAGIC = b"\x1f\x8b"
TSTYPES = ("unknown", "create", "logappend")
"""by confluent-kafka's numbers"""
UNKNOWN_BROKER = -1
"""as kcat writes it where librdkafka does not name the broker"""
_ENCODER = msgspec.json.Encoder()
MAX_TEXT_PAYLOAD_BYTES = 2 << 20
"""Bytes of a payload that is written as text."""


class TruncatedFileError(GForceError):
    """The file ends too early."""


class UnreadableFileError(GForceError):
    """The file is not what it seems to be."""


def compress(data: bytes, how: Compression) -> bytes:
    """One piece, complete in itself: pieces may be put one after the other."""
    if how == "zstd":
        return zstandard.ZstdCompressor(level=3, write_checksum=True).compress(data)
    if how == "gzip":
        return gzip.compress(data, 6, mtime=0)
    return data


def read_blocks(path: Path) -> Iterator[bytes]:
    """The content of a file, uncompressed, in pieces of bounded size."""
    with path.open("rb") as file:
        start = file.read(4)
        file.seek(0)
        if start == _ZSTD_MAGIC or start[1:] == _ZSTD_SKIPPABLE_MAGIC:
            yield from _zstd_blocks(file)
        elif start[:2] == _GZIP_MAGIC:
            yield from _gzip_blocks(file)
        else:
            while block := file.read(READ_BYTES):
                yield block


def _zstd_blocks(file: IO[bytes]) -> Iterator[bytes]:
    """Not by a stream reader, which treats a truncated frame as the end of the file."""
    frame = None
    decompressor = zstandard.ZstdDecompressor()
    try:
        while data := file.read(COMPRESSED_READ_BYTES):
            while data:
                frame = frame or decompressor.decompressobj()
                if block := frame.decompress(data):
                    yield block
                data = frame.unused_data if frame.eof else b""
                frame = None if frame.eof else frame
    except zstandard.ZstdError as problem:
        raise UnreadableFileError(f"is damaged: {problem}") from None
    if frame is not None:
        raise TruncatedFileError("is cut off in the middle of a compressed block")


def _gzip_blocks(file: IO[bytes]) -> Iterator[bytes]:
    try:
        with gzip.GzipFile(fileobj=file) as decompressed:
            while block := decompressed.read(READ_BYTES):
                yield block
    except EOFError:
        raise TruncatedFileError("is cut off in the middle of a compressed block") from None
    except (OSError, zlib.error) as problem:
        raise UnreadableFileError(f"is damaged: {problem}") from None


class RecordedLine(msgspec.Struct, gc=False):
    """A line. ``key_base64`` and ``payload_base64`` stand instead of, never beside, ``key`` and ``payload``."""

    topic: str
    partition: int
    offset: int
    tstype: str = "unknown"
    ts: int = -1
    broker: int = UNKNOWN_BROKER
    headers: list[str | None] | UnsetType = UNSET
    """name, value, name, value …"""
    key: str | UnsetType | None = UNSET
    payload: str | UnsetType | None = UNSET
    headers_base64: list[tuple[str, bytes | None]] | UnsetType = UNSET
    key_base64: bytes | UnsetType = UNSET
    payload_base64: bytes | UnsetType = UNSET


_DECODER = msgspec.json.Decoder(RecordedLine)


# Writing


def record_line(record: Record, tstype: str = "create") -> RecordedLine:
    """The record as a line.

    >>> encode_lines([record_line(Record("t", 0, 7, 1700, b"k", b"\\xff"))])
    b'{"topic":"t","partition":0,"offset":7,"tstype":"create","ts":1700,"broker":-1,"key":"k","payload_base64":"/w=="}\\n'
    """
    line = RecordedLine(record.topic, record.partition, record.offset, tstype, record.timestamp)
    return fill_line(line, record.key, record.value, record.headers)


def fill_line(line: RecordedLine, key: bytes | None, value: bytes | None, headers: Headers) -> RecordedLine:
    """Put the content in, as text where it is text and not huge: a zero byte would be written as six letters."""
    try:
        line.key = None if key is None else key.decode()
    except UnicodeDecodeError:
        line.key_base64 = key or b""
    try:
        if value is not None and len(value) > MAX_TEXT_PAYLOAD_BYTES:
            line.payload_base64 = value
        else:
            line.payload = None if value is None else value.decode()
    except UnicodeDecodeError:
        line.payload_base64 = value or b""
    if headers:
        _set_headers(line, headers)
    return line


def _set_headers(line: RecordedLine, headers: Headers) -> None:
    flat: list[str | None] = []
    try:
        for name, value in headers:
            flat += (name, None if value is None else value.decode())
        line.headers = flat
    except UnicodeDecodeError:
        line.headers_base64 = list(headers)


def encode_lines(lines: Iterable[RecordedLine]) -> bytes:
    return _ENCODER.encode_lines(lines)


# Reading


def read_file(path: Path) -> Iterator[Record]:
    """The records of one file, in its order; compressed or not, by the file's own first bytes."""
    return chain.from_iterable(read_record_lists(path))


def read_record_lists(path: Path) -> Iterator[list[Record]]:
    """``read_file`` as lists of records, as many as are decoded together."""
    last: Record | None = None
    try:
        for chunk in line_chunks(path):
            for found in decode_lists(chunk):
                last = found[-1]
                yield found
    except (TruncatedFileError, UnreadableFileError) as problem:
        raise _error_after(last, f"{path} {problem}") from None
    except OSError as problem:
        raise RecordingError(f"{path} cannot be read: {problem.strerror}") from None
    except (msgspec.MsgspecError, ValueError) as problem:
        raise _error_after(last, f"{path} has a line that is no record in the shape of `kcat -J`: {problem}") from None


def _error_after(last: Record | None, text: str) -> RecordingError:
    if last is None:
        return RecordingError(f"{text}, at its very beginning")
    where = f"after {last.topic}[{last.partition}] offset {last.offset}"
    return RecordingError(f"{text}, {where}", topic=last.topic, partition=last.partition, offset=last.offset)


def line_chunks(path: Path) -> Iterator[bytes]:
    """The file's content, cut at ends of lines."""
    kept = b""
    for block in read_blocks(path):
        end = block.rfind(b"\n") + 1
        if not end:
            kept += block
            continue
        yield kept + block[:end]
        kept = block[end:]
    if kept.strip():
        if not kept.rstrip().endswith(b"}"):
            raise TruncatedFileError("ends in the middle of a line")
        yield kept


def decode_records(chunk: bytes) -> Iterator[Record]:
    """The records of some whole lines."""
    return chain.from_iterable(decode_lists(chunk))


def decode_lists(chunk: bytes) -> Iterator[list[Record]]:
    """The records of some whole lines, all at once if nothing is wrong with them; no list is empty."""
    try:
        found = [
            Record(
                line.topic,
                line.partition,
                line.offset,
                line.ts,
                key.encode() if (key := line.key).__class__ is str else _optional_bytes(line.key_base64),
                payload.encode()
                if (payload := line.payload).__class__ is str
                else _optional_bytes(line.payload_base64),
                () if line.headers is UNSET and line.headers_base64 is UNSET else _headers(line, "utf-8"),
            )
            for line in _DECODER.decode_lines(chunk)
        ]
    except (msgspec.MsgspecError, ValueError):  # one by one, so that only the wrong line is refused
        yield from ([_decode_leniently(line)] for line in chunk.split(b"\n") if line.strip())
        return
    if found:
        yield found


def _decode_leniently(text: bytes) -> Record:
    """A line that may hold raw bytes, as kcat writes them."""
    encoding = "utf-8"
    try:
        line = _DECODER.decode(text)
    except UnicodeDecodeError:
        encoding = "latin-1"
        line = _DECODER.decode(text.decode(encoding))

    def content(value: Any, binary: bytes | UnsetType) -> bytes | None:
        return value.encode(encoding) if isinstance(value, str) else _optional_bytes(binary)

    key, value = content(line.key, line.key_base64), content(line.payload, line.payload_base64)
    return Record(line.topic, line.partition, line.offset, line.ts, key, value, _headers(line, encoding))


def _optional_bytes(binary: bytes | UnsetType) -> bytes | None:
    return None if binary is UNSET else binary


def _headers(line: RecordedLine, encoding: str) -> Headers:
    if not isinstance(line.headers_base64, UnsetType):
        return tuple(line.headers_base64)
    if isinstance(line.headers, UnsetType):
        return ()
    names, values = line.headers[::2], line.headers[1::2]
    if len(names) != len(values):
        raise ValueError(f"headers of offset {line.offset} are not pairs of name and value")
    contents = [None if value is None else value.encode(encoding) for value in values]
    if encoding == "utf-8":
        return tuple(zip([name or "" for name in names], contents, strict=True))
    known = [(name or "").encode(encoding).decode("utf-8", "replace") for name in names]
    return tuple(zip(known, contents, strict=True))
