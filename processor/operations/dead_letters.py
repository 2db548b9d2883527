"""The topic of dead letters: read, counted, shown, and sent back to where they came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from processor.adapters.kafka.sender import KafkaSender
from processor.adapters.kafka.settings import Properties
from processor.core.errors import InvalidInputError
from processor.ports.log import Reader, Record

from .group import positions_of

RESUBMITTED = "gforce.resubmitted"


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter with what its headers say."""

    record: Record
    reason: str
    detail: str
    topic: str
    partition: int
    offset: int
    timestamp: int
    whole: bool
    """False if only the first bytes of the original were kept"""

    @property
    def place(self) -> str:
        return f"{self.record.partition}:{self.record.offset}"

    @property
    def tenant(self) -> str:
        return (self.record.key or b"").decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which letters are meant; what is None or empty does not matter."""

    reason: str | None = None
    tenant: str | None = None
    since: int | None = None
    """time of the letter, in milliseconds"""
    places: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return self != Wanted()

    def takes(self, letter: Letter) -> bool:
        return (
            (self.reason is None or letter.reason == self.reason)
            and (self.tenant is None or letter.record.key == self.tenant.encode())
            and (self.since is None or letter.record.timestamp >= self.since)
            and (not self.places or letter.place in self.places)
        )


def letter_of(record: Record) -> Letter:
    """Read the headers; what is not ours has the reason "unknown"."""
    said = {name: (value or b"").decode(errors="replace") for name, value in record.headers}

    def number(name: str) -> int:
        text = said.get(name, "")
        return int(text) if text.lstrip("-").isdigit() else -1

    return Letter(
        record,
        said.get("gforce.reason", "unknown"),
        said.get("gforce.detail", ""),
        said.get("gforce.topic", ""),
        number("gforce.partition"),
        number("gforce.offset"),
        number("gforce.timestamp"),
        "gforce.length" not in said,
    )


def parsed_place(text: str) -> tuple[int, int]:
    """
    >>> parsed_place("3:17")
    (3, 17)
    """
    partition, colon, offset = text.partition(":")
    if not (colon and partition.isdigit() and offset.isdigit()):
        raise InvalidInputError(f'"{text}" is not the place of a dead letter: write partition:offset, as in 3:17')
    return int(partition), int(offset)


def letters(reader: Reader, topic: str, wanted: Wanted) -> Iterator[Letter]:
    """The letters that are meant, partition by partition."""
    places = [parsed_place(text) for text in wanted.places]
    for at, (first, end) in positions_of(reader, topic).items():
        offsets = [offset for partition, offset in places if partition == at.partition]
        if places and not offsets:
            continue
        start, stop = (max(min(offsets), first), max(offsets) + 1) if offsets else (first, end)
        yield from (letter for letter in map(letter_of, reader.read(at, start, stop)) if wanted.takes(letter))


@dataclass(slots=True)
class Summary:
    """All letters of one reason."""

    reason: str
    count: int
    latest: Letter


def summarised(found: Iterable[Letter]) -> list[Summary]:
    """By reason, most frequent first."""
    by_reason: dict[str, Summary] = {}
    for letter in found:
        summary = by_reason.setdefault(letter.reason, Summary(letter.reason, 0, letter))
        summary.count += 1
        if letter.record.timestamp >= summary.latest.record.timestamp:
            summary.latest = letter
    return sorted(by_reason.values(), key=lambda summary: (-summary.count, summary.reason))


def obstacle(letter: Letter, inputs: tuple[str, ...]) -> str | None:
    """Why a letter cannot be sent back, or None."""
    if letter.topic not in inputs:
        return f'its source "{letter.topic}" is not one of our inputs'
    if not letter.whole:
        return "only its first bytes were kept"
    return None


def resubmit(properties: Properties, chosen: Iterable[Letter]) -> int:
    """Send letters back: original key, bytes and time, on the partition of the key. Returns how many.

    To repeat it after a failure does no harm: the processor recognises requests and labels it has seen.
    """
    sender = KafkaSender(properties)
    count = 0
    for letter in chosen:
        headers = ((RESUBMITTED, letter.place.encode()),)
        sender.send(letter.topic, letter.record.key, letter.record.value, max(letter.timestamp, 0), headers)
        count += 1
    sender.flush()
    return count
