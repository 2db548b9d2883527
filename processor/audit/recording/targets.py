"""Where a recording is played to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from processor.adapters.kafka.group import describe_cluster
from processor.audit.sources.offsets import KafkaOffsets
from processor.audit.sources.recorded import RecordedSource
from processor.audit.sources.source import RecordingError, Role, Source, role_named

from .ranges import RecordingRefusedError


def targets(source: Source, roles: Iterable[Role], into: Sequence[str]) -> dict[Role, str]:
    """The topic for each role: named one by one, else the recorded name with the prefix in place of its own."""
    named = {role_named(text.partition("=")[0]): text.partition("=")[2] for text in into if "=" in text}
    prefixes = [text for text in into if "=" not in text]
    if len(prefixes) > 1:
        raise RecordingError(f'both "{prefixes[0]}" and "{prefixes[1]}" are prefixes to play into: give one')
    found: dict[Role, str] = {}
    for role in roles:
        if not source.has(role):
            raise RecordingError(f"the recording has no {role.replace('_', '-')}: choose others with --topics")
        if role in named:
            found[role] = named[role]
        elif prefixes:
            found[role] = prefixes[0] + _own_name(source, role)
        else:
            raise RecordingError(f"where are the {role} to go? Name it: --into {role}=TOPIC")
    return found


def _own_name(source: Source, role: Role) -> str:
    """Without the prefix it was recorded with, where that is known; else the role's usual name."""
    if isinstance(source, RecordedSource):
        return source.topic(role).removeprefix(source.manifest.prefix)
    return role.replace("_", "-")


def check_targets(
    properties: Mapping[str, str | int],
    source: Source,
    named: Mapping[Role, str],
    same_partitions: bool,
    into_the_same: bool,
) -> None:
    """The topics exist, can hold the partitions, and are not the recorded ones by mistake."""
    elsewhere = isinstance(source, RecordedSource) and source.manifest.cluster != describe_cluster(properties).name
    recorded = {source.topic(role) for role in named}
    counts = KafkaOffsets(properties).partitions(list(named.values()))
    for role, topic in named.items():
        if topic in recorded and not elsewhere and not into_the_same:
            raise RecordingRefusedError(
                f"{topic} is what was recorded: playing into it would decide everything again. Name other topics with "
                "--into, or say --yes-into-the-same"
            )
        if topic not in counts:
            raise RecordingError(f"there is no topic {topic}: create it, or name others with --into")
        most = max(source.partitions(role), default=-1)
        if same_partitions and most >= counts[topic]:
            raise RecordingRefusedError(
                f"{topic} has {counts[topic]} partitions and the recording goes to number {most}: create the topic "
                f"with {most + 1}, or leave out --same-partitions"
            )


def records_in(source: Source, roles: Iterable[Role]) -> int | None:
    """How many there are, where somebody counted."""
    if not isinstance(source, RecordedSource):
        return None
    wanted = set(roles)
    return sum(one.records for one in source.manifest.ranges if one.role in wanted)
