"""The files and pipes that lines are read from and written to, and what a person may have got wrong with them."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from processor.core.errors import GForceError, InvalidInputError


class OutputClosedError(GForceError):
    """Whoever read what is written has seen enough: `| head` has."""


@dataclass(frozen=True)
class LineOutput:
    """Writes lines, so that they are there at once. Raises ``OutputClosedError``."""

    name: str
    stream: BinaryIO

    def write(self, lines: bytes) -> None:
        try:
            self.stream.write(lines)
            self.stream.flush()
        except OSError as error:
            self._give_up()
            if isinstance(error, BrokenPipeError):
                raise OutputClosedError(f"nobody reads {self.name} any more") from None
            raise GForceError(f"cannot write {self.name} ({error.strerror}): make room, or write elsewhere") from None

    def _give_up(self) -> None:
        """What is left in the buffer goes nowhere; Python would try again when it closes it, and complain."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.stream.fileno())
        os.close(nowhere)


@contextmanager
def read_from(path: Path | None) -> Iterator[BinaryIO]:
    """A file, or standard input."""
    if path is None:
        if sys.stdin is None:
            raise InvalidInputError("standard input is closed: pipe lines into it, or name a file with --input")
        yield sys.stdin.buffer
        return
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        raise InvalidInputError(f'there is no file "{path}": --input names a file of JSON lines') from None
    except OSError as error:
        remedy = "--input names a file of JSON lines that you may read"
        raise InvalidInputError(f'cannot read "{path}" ({error.strerror}): {remedy}') from None
    with stream:
        yield stream


@contextmanager
def written_to(path: Path | None, option: str) -> Iterator[LineOutput]:
    """A file, which loses what it held, or standard output; ``option`` is what names the file."""
    if path is None:
        yield LineOutput("standard output", sys.stdout.buffer)
        return
    try:
        stream = path.open("wb")
    except FileNotFoundError:
        raise InvalidInputError(f'there is no folder "{path.parent}" for {option} "{path}": make it first') from None
    except OSError as error:
        remedy = f"{option} names a file that you may write"
        raise InvalidInputError(f'cannot write "{path}" ({error.strerror}): {remedy}') from None
    with stream:
        yield LineOutput(f'"{path}"', stream)


def refuse_same(source: BinaryIO, sink: Path | None) -> None:
    """A file cannot be read while it is written anew, whatever it is called the second time."""
    try:
        read, written = os.fstat(source.fileno()), sink.stat() if sink else os.fstat(sys.stdout.fileno())
    except OSError:  # there is none of that name, or a test has put something else in its place
        return
    if stat.S_ISREG(read.st_mode) and os.path.samestat(read, written):
        name = f'"{sink}"' if sink else "the same file"
        raise InvalidInputError(f"{name} is both input and output, and would be emptied: write to another file")
