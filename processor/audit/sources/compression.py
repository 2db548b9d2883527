"""Files of a recording on disk: compressed in pieces, so that what was written before a crash can be read."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Literal, get_args

import zstandard

from processor.core.errors import GForceError

Compression = Literal["zstd", "gzip", "none"]
COMPRESSIONS: tuple[Compression, ...] = get_args(Compression)
ENDINGS: dict[Compression, str] = {"zstd": ".jsonl.zst", "gzip": ".jsonl.gz", "none": ".jsonl"}

BLOCK = 1 << 18
PIECE = 1 << 14
"""of compressed input at a time, which bounds what it may unfold to"""
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = b"\x2a\x4d\x18"
"""bytes 1 to 3 of a zstd frame that holds no data, as `pzstd` writes first"""
_GZIP_MAGIC = b"\x1f\x8b"


class TruncatedFileError(GForceError):
    """The file ends too early."""


class UnreadableFileError(GForceError):
    """The file is not what it seems to be."""


def compressed(data: bytes, how: Compression) -> bytes:
    """One piece, complete in itself: pieces may be put one after the other."""
    if how == "zstd":
        return zstandard.ZstdCompressor(level=3, write_checksum=True).compress(data)
    if how == "gzip":
        return gzip.compress(data, 6, mtime=0)
    return data


def blocks(path: Path) -> Iterator[bytes]:
    """The content of a file, uncompressed, in pieces of bounded size."""
    with path.open("rb") as file:
        start = file.read(4)
        file.seek(0)
        if start == _ZSTD_MAGIC or start[1:] == _SKIPPABLE:
            yield from _zstd_blocks(file)
        elif start[:2] == _GZIP_MAGIC:
            yield from _gzip_blocks(file)
        else:
            while block := file.read(BLOCK):
                yield block


def _zstd_blocks(file: IO[bytes]) -> Iterator[bytes]:
    """By hand and not by a stream reader, which takes a frame that is cut off for the end of the file."""
    frame = None
    unfolding = zstandard.ZstdDecompressor()
    try:
        while data := file.read(PIECE):
            while data:
                frame = frame or unfolding.decompressobj()
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
        with gzip.GzipFile(fileobj=file) as unfolded:
            while block := unfolded.read(BLOCK):
                yield block
    except EOFError:
        raise TruncatedFileError("is cut off in the middle of a compressed block") from None
    except (OSError, zlib.error) as problem:
        raise UnreadableFileError(f"is damaged: {problem}") from None
