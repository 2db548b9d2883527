"""How the topics must be, and what is wrong with those that exist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from processor.adapters.kafka.admin import Topic
from processor.core.stream.partitioner import partition_of
from processor.ports.log import Reader, TopicPartition
from processor.service.topics import TopicNames

FOR_EVER = -1
MAX_MESSAGE = 2 << 20
LEAST_MESSAGE = (1 << 20) + 12
"""Kafka's own default; changelog records and dead letters stay below it"""
DAY_MS = 86_400_000
LEAST_INPUT_RETENTION = 7 * DAY_MS
SAMPLED_RECORDS_PER_PARTITION = 200

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One thing that was looked at. Only a problem makes the exit code 1."""

    level: Level
    what: str
    found: str
    remedy: str = ""


def wanted(topics: TopicNames, partitions: int, replication: int, retention: int) -> list[Topic]:
    """All topics as they should be made. ``retention`` in milliseconds, for inputs and results; −1 is for ever.

    >>> names = TopicNames("requests", "feedback", "decisions", "journal", "changelog", "dead-letters", "alerts")
    >>> journal = next(topic for topic in wanted(names, 4, -1, 86_400_000) if topic.name == "journal")
    >>> journal.configs["retention.ms"], journal.partitions
    ('-1', 4)
    """
    common = {"cleanup.policy": "delete", "max.message.bytes": str(MAX_MESSAGE)}
    if replication >= 3:
        common["min.insync.replicas"] = "2"
    limited = {**common, "retention.ms": str(retention)}
    # We trim the changelog ourselves, behind complete snapshots; the broker's time of each record lets the doctor
    # compare clocks.
    kept = {**common, "retention.ms": str(FOR_EVER), "retention.bytes": "-1"}
    changelog = {**kept, "message.timestamp.type": "LogAppendTime"}
    plans = dict.fromkeys(_every(topics), limited) | {topics.journal: kept, topics.changelog: changelog}
    return [Topic(name, partitions, plans[name], replication) for name in plans]


def _every(topics: TopicNames) -> list[str]:
    return [
        topics.requests,
        topics.feedback,
        topics.decisions,
        topics.journal,
        topics.changelog,
        topics.dead_letters,
        topics.alerts,
    ]


def examined(topics: TopicNames, found: Mapping[str, Topic | None]) -> Iterator[CheckResult]:
    """What is wrong with the topics as they are."""
    for name in _every(topics):
        if found[name] is None:
            yield CheckResult("problem", name, "does not exist", "gforce topics create")
    there = {name: topic for name, topic in found.items() if topic is not None}
    yield from _counts(topics, there)
    for name in _every(topics):
        if name in there:
            yield from _examined_one(topics, there[name])


def _counts(topics: TopicNames, there: Mapping[str, Topic]) -> Iterator[CheckResult]:
    tied = [name for name in (*topics.inputs, topics.journal, topics.changelog) if name in there]
    counts = {name: there[name].partitions for name in tied}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name} {count}" for name, count in counts.items())
        remedy = "give them equal counts; a topic with records cannot change its count: make it anew"
        yield CheckResult("problem", "partition counts", shown, remedy)
    elif counts:
        yield CheckResult("ok", "partition counts", f"{next(iter(counts.values()))} on each of {', '.join(tied)}")


def _examined_one(topics: TopicNames, topic: Topic) -> Iterator[CheckResult]:
    findings = [*_cleanup(topic), *_retention(topics, topic), *_size(topic), *_replicas(topic)]
    yield from findings or [
        CheckResult("ok", topic.name, f"{topic.partitions} partitions, {topic.replication} replicas")
    ]


def _cleanup(topic: Topic) -> Iterator[CheckResult]:
    policy = topic.configs.get("cleanup.policy", "delete")
    if policy != "delete":
        why = "compaction would keep only the last record of each tenant"
        yield CheckResult("problem", topic.name, f"cleanup.policy={policy}: {why}", "set cleanup.policy=delete")


def _retention(topics: TopicNames, topic: Topic) -> Iterator[CheckResult]:
    kept = int(topic.configs.get("retention.ms", 7 * DAY_MS))
    size = int(topic.configs.get("retention.bytes", -1))
    if topic.name in (topics.journal, topics.changelog):
        if (kept, size) != (FOR_EVER, -1):
            why = "an audit needs all of it" if topic.name == topics.journal else "the processor trims it itself"
            remedy = "set retention.ms=-1 and retention.bytes=-1"
            yield CheckResult("problem", topic.name, f"retention.ms={kept}, retention.bytes={size}: {why}", remedy)
    elif topic.name in topics.inputs and (kept != FOR_EVER or size != -1):
        level: Level = "problem" if 0 <= kept < LEAST_INPUT_RETENTION else "warning"
        limit = f"{kept / DAY_MS:g} days" if kept != FOR_EVER else f"{size} bytes per partition"
        why = "a processor that is down for longer loses records, and no audit reaches further back"
        yield CheckResult(level, topic.name, f"kept for {limit}: {why}", "set retention.ms=-1, or record the inputs")


def _size(topic: Topic) -> Iterator[CheckResult]:
    size = int(topic.configs.get("max.message.bytes", LEAST_MESSAGE))
    if size < LEAST_MESSAGE:
        yield CheckResult("problem", topic.name, f"max.message.bytes={size}", f"set max.message.bytes={MAX_MESSAGE}")


def _replicas(topic: Topic) -> Iterator[CheckResult]:
    least, replicas = int(topic.configs.get("min.insync.replicas", 1)), topic.replication
    if topic.configs.get("unclean.leader.election.enable") == "true":
        why = "a broker that lags may become leader and drop what was committed"
        remedy = "set unclean.leader.election.enable=false"
        yield CheckResult("problem", topic.name, f"unclean.leader.election.enable=true: {why}", remedy)
    if least > replicas:
        found = f"min.insync.replicas={least} with {replicas} replicas: nothing can be written"
        yield CheckResult("problem", topic.name, found, "lower min.insync.replicas or add replicas")
    elif replicas == 1:
        yield CheckResult(
            "warning", topic.name, "one replica: lost with its broker", "3 replicas, min.insync.replicas=2"
        )
    elif least == 1:
        found = f"min.insync.replicas=1 with {replicas} replicas: a commit may be on one broker only"
        yield CheckResult("problem", topic.name, found, "set min.insync.replicas=2")
    elif least == replicas:
        found = f"min.insync.replicas={least} with {replicas} replicas: one broker down stops everything"
        yield CheckResult("warning", topic.name, found, "add a replica")


def partitioners(topics: TopicNames, reader: Reader) -> Iterator[CheckResult]:
    """Whether the last records of the inputs sit where murmur2 puts their keys."""
    for topic in topics.inputs:
        partitions = reader.partitions(topic)
        if partitions is not None:
            yield placement(topic, _sampled(reader, topic, partitions))


def _sampled(reader: Reader, topic: str, partitions: int) -> Counter[str]:
    seen: Counter[str] = Counter()
    for number in range(partitions):
        first, end = reader.bounds(TopicPartition(topic, number))
        for record in reader.read(TopicPartition(topic, number), max(first, end - SAMPLED_RECORDS_PER_PARTITION), end):
            if record.key is None:
                seen["keyless"] += 1
            else:
                seen["right" if partition_of(record.key, partitions) == number else "wrong"] += 1
    return seen


def placement(topic: str, seen: Mapping[str, int]) -> CheckResult:
    """What a sample says about the producers' partitioner.

    >>> placement("requests", {"right": 3, "wrong": 1}).found
    '3 of the last 4 records sit on the partition that murmur2 gives their key, 0 have no key'
    """
    right, keyless = seen.get("right", 0), seen.get("keyless", 0)
    total = right + keyless + seen.get("wrong", 0)
    if not total:
        return CheckResult("ok", f"partitioner of {topic}", "no records yet")
    found = (
        f"{right} of the last {total} records sit on the partition that murmur2 gives their key, {keyless} have no key"
    )
    if right == total:
        return CheckResult("ok", f"partitioner of {topic}", found)
    remedy = "produce with the tenant as key; outside Java set partitioner=murmur2_random"
    return CheckResult("problem", f"partitioner of {topic}", found, remedy)
