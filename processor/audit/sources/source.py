"""Where an audit reads from: a recording, plain ``kcat -J`` files, or a running cluster, all seen the same way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, Protocol, get_args

from processor.core.errors import GForceError, one_of
from processor.ports.log import Record

Role = Literal["requests", "feedback", "decisions", "journal", "changelog", "dead_letters", "alerts"]
ROLES: tuple[Role, ...] = get_args(Role)

MANIFEST = "manifest.json"


class RecordingError(GForceError):
    """A recording cannot be read as it is; where that is known, the place is named apart from the message."""

    def __init__(self, text: str, *, topic: str = "", partition: int = -1, offset: int = -1) -> None:
        super().__init__(text)
        self.topic, self.partition, self.offset = topic, partition, offset


class Source(Protocol):
    """The topics of one processor, read ``read_committed``.

    A source can be pickled, and the copy reads by itself: processes that share out the partitions need nothing else.
    """

    def partitions(self, role: Role = "journal") -> list[int]:
        """The partitions with any record. Decisions, dead letters and alerts are partitioned by key: their partition
        count may differ from that of the inputs, the journal and the changelog."""

    def read(self, role: Role, partition: int, start: int = 0) -> Iterator[Record]:
        """In order of offset, from ``start`` on; memory does not grow with the length. Several reads may be under way
        at once. Empty for what was not recorded (see ``has``). Raises RecordingError for what cannot be read."""

    def has(self, role: Role) -> bool:
        """Whether this topic was recorded at all, even if it is empty."""

    def topic(self, role: Role) -> str:
        """The topic's real name; the role's own if it is not known."""

    def bounds(self, role: Role, partition: int) -> tuple[int, int] | None:
        """The offsets [start, end) that are known to be covered; None if that is not known (plain files)."""

    def gaps(self, role: Role, partition: int) -> list[tuple[int, int]] | None:
        """Offsets [first, end) within the bounds that were gone before they could be recorded; None if that is not
        known (plain files)."""

    def anchor(self, partition: int) -> str | None:
        """The identity (``core.stream.identity``, as text) that the journal must contain, known from elsewhere than the
        journal: what the group had committed, or where a recording was made to stop. None if unknown."""


@contextmanager
def open_source(paths: Sequence[Path], topics: Mapping[Role, str] | None = None) -> Iterator[Source]:
    """A recording (the folder with its manifest), or plain files in the shape of ``kcat -J``, or folders of those.

    ``topics`` names the topics of plain files, where their names do not tell. Plain files are first taken apart by
    topic and partition into a temporary folder, because they may hold them in any mixture.
    """
    from .file_sources import RecordedSource, find_files, spool_files

    if len(paths) == 1 and (paths[0] / MANIFEST).is_file():
        yield RecordedSource(paths[0])
        return
    if mixed := [path for path in paths if (path / MANIFEST).is_file()]:
        raise RecordingError(f"{mixed[0]} is a recording with a manifest: it must be read alone")
    with TemporaryDirectory(prefix="gforce-") as folder:
        yield spool_files(find_files(paths), Path(folder), topics)


def assign_roles(names: Iterable[str], topics: Mapping[Role, str] | None = None) -> dict[Role, str]:
    """Which of these topics is which. Unless one is named for it, a name must be the role's own, with any prefix.

    >>> assign_roles(["eu.requests", "eu.dead-letters", "weather"])
    {'dead_letters': 'eu.dead-letters', 'requests': 'eu.requests'}
    >>> assign_roles(["claims"], {"requests": "claims"})
    {'requests': 'claims'}
    """
    found: dict[Role, str] = {}
    there = sorted(set(names))
    named = {role: topic for role, topic in (topics or {}).items() if topic in there}
    for name in there:
        role = _role_of(name, named)
        if role is None:
            continue
        if role in found:
            raise RecordingError(f'both "{found[role]}" and "{name}" look like {role}: say which one is meant')
        found[role] = name
    return found


def _role_of(topic: str, named: Mapping[Role, str]) -> Role | None:
    for role in ROLES:
        if named.get(role) == topic:
            return role
    plain = topic.replace("_", "-")
    for role in ROLES:
        own = role.replace("_", "-")
        if role not in named and (plain == own or plain.endswith((f".{own}", f"-{own}"))):
            return role
    return None


def parse_role(text: str) -> Role:
    """
    >>> parse_role("dead-letters")
    'dead_letters'
    """
    for role in ROLES:
        if role == text.strip().replace("-", "_"):
            return role
    raise RecordingError(f'"{text}" is none of our topics: expected {one_of(role.replace("_", "-") for role in ROLES)}')
