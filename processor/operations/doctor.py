"""``gforce doctor``: can this configuration work here, and what would a start do?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import confluent_kafka

from processor.adapters.kafka.group import describe_cluster, try_transaction
from processor.adapters.kafka.settings import LastWords
from processor.config import Config
from processor.core import native
from processor.core.errors import GForceError
from processor.ports.log import TopicPartition
from processor.run.assembly import client_properties, wall_ms

from . import history
from .group import Forecast, Place, foresee
from .topic_plans import SAMPLED_RECORDS_PER_PARTITION, CheckResult

DOCTOR = "doctor"
HEARTBEAT = 3_000
"""librdkafka's default, milliseconds"""
MAX_CLOCK_SKEW_MS = 1_000
"""milliseconds two clocks may differ before we say so"""


def examine(place: Place, seed_missing: str | None) -> list[CheckResult]:
    """Every check by itself, so that one failure does not hide the next."""
    findings = [
        _seed(seed_missing),
        _tier(),
        *session(place.config),
        *_tried("Redis", lambda: _redis(place)),
        *_tried("Kafka", lambda: _kafka(place), at=place.config.kafka.bootstrap_servers),
    ]
    if unreachable(findings, "Kafka"):
        return findings  # each of the others would only wait for its own timeout
    missing = [name for name in place.config.topics.full().values() if place.reader.partitions(name) is None]
    if missing:
        absent = CheckResult("problem", "topics", f"missing: {', '.join(missing)}", "gforce topics create")
        return [*findings, absent, *_tried("group", lambda: _group(place))]
    on_kafka: dict[str, Callable[[], Iterator[CheckResult]]] = {
        "transactions": lambda: _transactions(place),
        "producers' clocks": lambda: _producers(place),
        "group": lambda: _group(place),
        "history": lambda: iter(history.examine(place.recovery, place.partitions())),
    }
    return findings + [finding for name, check in on_kafka.items() for finding in _tried(name, check)]


REMEDIES = {
    "Kafka": "start it, or correct kafka.bootstrap_servers, and what it needs in kafka.properties",
    "Redis": "start it, or correct redis.url",
}


def unreachable(findings: Iterable[CheckResult], *what: str) -> bool:
    return any(one.what in what and one.level == "problem" for one in findings)


def _tried(name: str, check: Callable[[], Iterator[CheckResult]], at: str = "") -> Iterator[CheckResult]:
    try:
        yield from check()
    except GForceError as error:
        found = [f"{at}: {error}", LastWords.text] if at else [str(error)]
        yield CheckResult("problem", name, "; ".join(filter(None, found)), REMEDIES.get(name, ""))


def foresights(place: Place) -> list[Forecast]:
    """For every partition there is; none if there are no topics, which has been said already."""
    partitions = place.reader.partitions(place.topics.requests) or 0
    return [foresee(place, number, partitions) for number in range(partitions)]


def _seed(missing: str | None) -> CheckResult:
    if missing is None:
        return CheckResult("ok", "seed", "present")
    return CheckResult("problem", "seed", "processing.seed is missing", "gforce doctor --new-seed, and keep it secret")


def _tier() -> CheckResult:
    if native.tier() == "native":
        return CheckResult("ok", "tier", "native")
    return CheckResult("warning", "tier", *native.REMEDY.split(". ", 1))


def session(config: Config) -> Iterator[CheckResult]:
    """A member whose heartbeats come too seldom is thrown out again and again, and nothing moves."""
    kafka = config.kafka
    given = {**kafka.properties.reveal(), **kafka.consumer_properties.reveal()}
    heartbeat = int(given.get("heartbeat.interval.ms", HEARTBEAT))
    if kafka.protocol == "classic" and kafka.session_timeout_ms < 2 * heartbeat:
        found = f"session_timeout_ms is {kafka.session_timeout_ms} and heartbeat.interval.ms {heartbeat}"
        remedy = "set heartbeat.interval.ms in kafka.consumer_properties to a third of the session"
        yield CheckResult("problem", "session", found, remedy)


def _kafka(place: Place) -> Iterator[CheckResult]:
    cluster = describe_cluster(client_properties(place.config))
    version = confluent_kafka.libversion()[0]
    yield CheckResult("ok", "Kafka", f"cluster {cluster.name}, {cluster.brokers} brokers; our librdkafka is {version}")
    longest = int(cluster.configs.get("transaction.max.timeout.ms", 900_000))
    timeout = place.config.kafka.transaction_timeout_ms
    if timeout > longest:
        found = f"transaction_timeout_ms is {timeout}, the broker allows {longest}"
        yield CheckResult("problem", "Kafka", found, f"set it to at most {longest}")


def _redis(place: Place) -> Iterator[CheckResult]:
    for name, version in place.store.versions().items():
        yield CheckResult("ok", "Redis", f"{name}: {version}")
    place.store.check()
    if place.store.doubts:
        remedy = "make sure that it is noeviction"
        yield from (CheckResult("warning", "maxmemory-policy", doubt, remedy) for doubt in place.store.doubts)
    else:
        yield CheckResult("ok", "maxmemory-policy", "noeviction")


def _transactions(place: Place) -> Iterator[CheckResult]:
    kafka = place.config.kafka
    properties = client_properties(place.config, kafka.producer_properties.reveal())
    skew = try_transaction(properties, kafka.group, DOCTOR, TopicPartition(place.topics.changelog, 0), wall_ms)
    done = f"{kafka.group}-{DOCTOR} wrote to {place.topics.changelog} and took it back"
    yield CheckResult("ok", "transactions", done)
    yield _skew(place.topics.changelog, skew)


def _skew(topic: str, skew: int | None) -> CheckResult:
    if skew is None:
        remedy = f"set message.timestamp.type=LogAppendTime on {topic}"
        return CheckResult("warning", "broker's clock", f"unknown: {topic} keeps the time of the producer", remedy)
    found = f"{abs(skew)} ms {'ahead of' if skew >= 0 else 'behind'} ours"
    if abs(skew) > MAX_CLOCK_SKEW_MS:
        return CheckResult("problem", "broker's clock", found, "run NTP on both")
    return CheckResult("ok", "broker's clock", found)


def _producers(place: Place) -> Iterator[CheckResult]:
    """The newest timestamp of each input: one far ahead of us is refused as future-timestamp."""
    allowed = place.config.processing.max_future_ms
    for topic in place.topics.inputs:
        newest = _newest(place, topic)
        if newest is None:
            yield CheckResult("ok", f"newest of {topic}", "no records yet")
        elif newest - wall_ms() > allowed:
            found = f"{(newest - wall_ms()) / 1000:g} s in the future; {allowed / 1000:g} s are allowed"
            yield CheckResult(
                "problem", f"newest of {topic}", found, "correct the producer's clock or unit (milliseconds)"
            )
        else:
            yield CheckResult("ok", f"newest of {topic}", f"{max(wall_ms() - newest, 0) / 1000:.1f} s old")


def _newest(place: Place, topic: str) -> int | None:
    times = []
    for number in range(place.reader.partitions(topic) or 0):
        first, end = place.reader.bounds(TopicPartition(topic, number))
        times += [
            record.timestamp
            for record in place.reader.read(
                TopicPartition(topic, number), max(first, end - SAMPLED_RECORDS_PER_PARTITION), end
            )
        ]
    return max(times, default=None)


def _group(place: Place) -> Iterator[CheckResult]:
    members = place.group.members()
    found = f"running: {', '.join(members)}" if members else "nobody is running"
    yield CheckResult("ok", f"group {place.config.kafka.group}", found)
