"""Put a processor together from its configuration."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from functools import lru_cache, partial

from processor.adapters.kafka.admin import delete_records
from processor.adapters.kafka.input import KafkaInput
from processor.adapters.kafka.output import KafkaOutput
from processor.adapters.kafka.reader import KafkaReader
from processor.adapters.redis.store import RedisStore
from processor.config import Config, UnknownTenantError, canonical, digest, tenant_settings
from processor.core.stream.partition import SettingsFor
from processor.core.stream.step import StreamSettings
from processor.core.stream.tenant import TenantSettings
from processor.ports.codec import Codec
from processor.ports.log import TopicPartition
from processor.service.executors import in_order
from processor.service.topics import TopicNames
from processor.service.worker import LoopSettings, Worker

Notify = Callable[[str, dict[str, object]], None]

MAX_DUE_ENTRIES_PER_BATCH = 10_000
"""Entries of due slots that a batch looks at: Redis looks them up and takes the writes within some 50 ms each."""
STORE_THREADS = 2
"""Or a partition would wait until the store has been told of all others."""

SIZES = ("receive.message.max.bytes", "fetch.max.bytes", "fetch.message.max.bytes", "max.partition.fetch.bytes")
"""What the reader must have in common with the member of the group: both can read the same records then."""


def topics_of(config: Config) -> TopicNames:
    return TopicNames(**config.topics.full())


def stream_settings(config: Config) -> StreamSettings:
    return StreamSettings(
        limits=config.limits,
        settings_for=tenant_settings_of(config),
        max_future=config.processing.max_future_ms,
        slot=config.processing.slot_ms,
        sweep=MAX_DUE_ENTRIES_PER_BATCH,
    )


def loop_settings(config: Config) -> LoopSettings:
    """Budgets are parts of the transaction timeout: with one call to the store and the commit there must be room."""
    processing, timeout = config.processing, config.kafka.transaction_timeout_ms
    return LoopSettings(
        commit_interval=processing.commit_interval_ms,
        most_records=processing.max_batch_records,
        for_each_tenant=12,
        grace=processing.grace_ms,
        breaker_records=processing.breaker_records,
        breaker_share=processing.breaker_share,
        snapshot_bytes=processing.snapshot_bytes,
        step_budget=max(timeout // 10, 1),
        transaction_budget=max(timeout // 4, 1),
    )


def tenant_settings_of(config: Config) -> SettingsFor:
    """The rules of a tenant by its name, each worked out once."""

    @lru_cache(maxsize=100_000)
    def settings_for(tenant: str) -> TenantSettings | None:
        try:
            found = tenant_settings(config, tenant)
        except UnknownTenantError:
            return None
        return TenantSettings(
            settings=found.settings,
            seed=found.seed_bytes,
            digest=digest(found),
            canonical=canonical(found).decode(),
            expiry=found.expiry,
            on_expiry=found.on_expiry,
            parking=found.parking,
            horizon=found.duplicate_horizon,
            watch=found.watch,
            windows=found.windows,
            max_groups=config.limits.max_groups,
            max_experts=config.limits.max_experts,
            max_choices=config.limits.max_choices,
        )

    return settings_for


def store_of(config: Config) -> RedisStore:
    redis = config.redis
    return RedisStore(redis.url.reveal(), redis.prefix, redis.cluster, redis.timeout_ms / 1_000)


def codec_of(config: Config) -> Codec | None:
    """Avro where a schema registry is configured, else None: JSON as it is."""
    if not config.avro.registry:
        return None
    from processor.adapters.avro import AvroCodec, AvroOptions

    topics, properties = topics_of(config), config.avro.properties.reveal()
    return AvroCodec(config.avro.registry, AvroOptions(topics.requests, topics.feedback, topics.decisions, properties))


def client_properties(config: Config, *more: Mapping[str, str | int]) -> dict[str, str | int]:
    """librdkafka's properties: ours, then whatever the user passes through."""
    kafka = config.kafka
    properties: dict[str, str | int] = {"bootstrap.servers": kafka.bootstrap_servers}
    properties |= kafka.properties.reveal()
    for part in more:
        properties |= part
    return properties


def _trim(properties: Mapping[str, str | int], at: TopicPartition, offset: int) -> None:
    delete_records(properties, at, offset)


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def worker_of(config: Config, notify: Notify) -> Worker:
    """A worker on Kafka and Redis."""
    kafka = config.kafka
    session: dict[str, str | int] = {}
    if kafka.protocol == "classic":
        session = {
            "session.timeout.ms": kafka.session_timeout_ms,
            "heartbeat.interval.ms": max(kafka.session_timeout_ms // 4, 100),
        }
    own = kafka.consumer_properties.reveal()
    consumer = client_properties(config, session, own)
    sizes = {name: value for name, value in own.items() if name in SIZES}
    producer = client_properties(config, kafka.producer_properties.reveal())
    topics = topics_of(config)
    store = store_of(config)
    store.check()
    return Worker(
        topics=topics,
        make_input=lambda listener: KafkaInput(
            consumer, kafka.group, kafka.instance, topics.sources, listener, protocol=kafka.protocol
        ),
        make_output=lambda: KafkaOutput(
            producer, kafka.group, kafka.instance, transaction_timeout_ms=kafka.transaction_timeout_ms
        ),
        reader=KafkaReader(client_properties(config, sizes)),
        store=store,
        stream_settings=stream_settings(config),
        loop_settings=loop_settings(config),
        wall_ms=wall_ms,
        monotonic_ms=monotonic_ms,
        entropy=secrets.token_bytes,
        store_executors=[in_order("store") for _ in range(STORE_THREADS)],
        hashing=in_order("hashes"),
        trimming=in_order("trim"),
        codec=codec_of(config),
        trim=partial(_trim, client_properties(config)),
        notify=notify,
    )
