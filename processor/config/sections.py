"""The sections of the configuration, with their defaults. ``example.toml`` explains every key."""

from __future__ import annotations

import re
import socket
from ipaddress import ip_address
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from processor.core.alerts.alerts import MonitorSettings
from processor.core.errors import InvalidSettingsError
from processor.core.events import Label, Limits
from processor.core.settings import ObjectiveName, PolicyName, Prior

from .values import Duration, Properties, RedisUrl, Secret

Count = Annotated[int, Meta(ge=1)]
Amount = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(gt=0, le=1)]
Text = Annotated[str, Meta(min_length=1)]
Port = Annotated[int, Meta(ge=0, le=65_535)]

ShadowName = Literal["gforce/gap", "gforce/bound", "gforce/paper", "gforce/mixture", "groupaware", "mw"]

_AVRO_VARIABLE = """as a variable set the whole table, GFORCE_AVRO__PROPERTIES='{ "max.retries" = 1 }'"""
_HOST_NAME = re.compile(r"\*|(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


class Kafka(msgspec.Struct, frozen=True, kw_only=True):
    bootstrap_servers: Text = "127.0.0.1:9092"
    group: Text = "gforce"
    instance: Text = msgspec.field(default_factory=socket.gethostname)
    protocol: Literal["classic", "consumer"] = "classic"
    transaction_timeout_ms: Count = 10_000
    session_timeout_ms: Count = 10_000
    properties: Properties = Properties()
    consumer_properties: Properties = Properties()
    producer_properties: Properties = Properties()


class Topics(msgspec.Struct, frozen=True, kw_only=True):
    prefix: str = ""
    requests: Text = "requests"
    feedback: Text = "feedback"
    decisions: Text = "decisions"
    journal: Text = "journal"
    changelog: Text = "changelog"
    dead_letters: Text = "dead-letters"
    alerts: Text = "alerts"

    def __post_init__(self) -> None:
        full = list(self.full().values())
        for name in full:
            if not _TOPIC.fullmatch(name) or name in (".", ".."):
                raise InvalidSettingsError(
                    f'"{name}" cannot be the name of a topic: use at most 249 of a-z, A-Z, 0-9, ".", "_" and "-"'
                )
        twice = sorted({name for name in full if full.count(name) > 1})
        if twice:
            raise InvalidSettingsError(f'two topics have the name "{twice[0]}": give each its own')

    def full(self) -> dict[str, str]:
        """Every topic's name with the prefix, by its key here.

        >>> Topics(prefix="eu.").full()["dead_letters"]
        'eu.dead-letters'
        """
        roles = [field for field in self.__struct_fields__ if field != "prefix"]
        return {role: self.prefix + getattr(self, role) for role in roles}


class Redis(msgspec.Struct, frozen=True, kw_only=True):
    url: RedisUrl = RedisUrl("redis://127.0.0.1:6379/0")
    prefix: Text = "gforce"
    cluster: bool = False
    timeout_ms: Count = 5_000

    def __post_init__(self) -> None:
        # A brace of the prefix would take the place of the partition's hash tag in Redis Cluster.
        if "{" in self.prefix or "}" in self.prefix:
            raise InvalidSettingsError("prefix has a brace: braces mark the hash tag of a partition, leave them out")
        if self.cluster and "+sentinel://" in self.url.reveal():
            raise InvalidSettingsError("cluster is true and url names sentinels, which a cluster has not: choose one")


class Avro(msgspec.Struct, frozen=True, kw_only=True):
    registry: str = ""
    properties: Properties = Properties()

    def __post_init__(self) -> None:
        properties = self.properties.reveal()
        for url in self.registry.split(","):
            if self.registry and not url.strip().startswith(("http://", "https://")):
                raise InvalidSettingsError("registry: expected a URL that starts with http:// or https://")
        if "@" in self.registry + properties.get("proxy", ""):
            raise InvalidSettingsError(
                "a password in a URL would be printed: for the registry set the property basic.auth.user.info"
            )
        for name in properties:
            # A secret is known by its name in dots; with underscores it would be printed.
            if "_" in name:
                raise InvalidSettingsError(f"properties.{name}: names have dots and no underscores: {_AVRO_VARIABLE}")


class Processing(msgspec.Struct, frozen=True, kw_only=True):
    seed: Secret | None = None
    commit_interval_ms: Count = 100
    max_batch_records: Annotated[int, Meta(ge=1, le=40_000)] = 20_000  # more hashes would not fit into the journal
    grace_ms: Amount = 1_000
    max_future_ms: Count = 300_000
    slot_ms: Annotated[int, Meta(ge=1_000)] = 60_000  # slots are numbered in 32 bits, which shorter ones overflow
    stall_seconds: Annotated[float, Meta(gt=0)] = 30.0
    breaker_records: Count = 1_000
    breaker_share: Share = 0.5
    snapshot_bytes: Count = 8 << 20


class Http(msgspec.Struct, frozen=True, kw_only=True):
    host: Text = "127.0.0.1"
    port: Port = 9464
    token: Secret | None = None
    allowed_hosts: tuple[str, ...] = ()
    max_connections: Count = 100
    request_timeout_ms: Count = 10_000

    def __post_init__(self) -> None:
        for name in self.allowed_hosts:
            if not _HOST_NAME.fullmatch(name) and not _is_address(name):
                raise InvalidSettingsError(
                    f'allowed_hosts: "{name}" is not the name of a host: write "gforce.example", "*.example" or "*", '
                    "without http:// and without a port"
                )

    @property
    def url(self) -> str:
        """Where the commands of the same machine ask.

        >>> Http(host="::1").url
        'http://[::1]:9464'
        """
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


class Log(msgspec.Struct, frozen=True, kw_only=True):
    format: Literal["auto", "text", "json"] = "auto"
    level: Literal["debug", "info", "warning", "error"] = "info"


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A later balance: what is not given stays as it was before."""

    from_labels: Count
    lambda_: float | dict[str, float] | None = msgspec.field(default=None, name="lambda")
    lambda_regret: float | None = None


class TenantTable(msgspec.Struct, frozen=True, kw_only=True):
    """What [tenants.default] and [tenants."name"] may hold, after inheritance."""

    policy: PolicyName = "gforce"
    objective: ObjectiveName = "gap"
    eta: float | Literal["auto"] = 0.35
    lambda_: float | dict[str, float] = msgspec.field(default=1.0, name="lambda")
    lambda_regret: float = 1.0
    schedule: tuple[Step, ...] = ()
    shadows: tuple[ShadowName, ...] = ("groupaware", "mw")
    labels: tuple[Label, ...] = ("false", "true")
    positive: Label = "true"
    groups: tuple[Label, ...] = ()
    feedback: Literal["all", "positive-only"] = "all"
    explore: float | None = None
    bucket: Duration = Duration(86_400_000)
    keep: Count = 32
    window: Count | Literal["lifetime"] = "lifetime"
    expiry: Duration = Duration(90 * 86_400_000)
    on_expiry: str = "drop"
    parking: Duration = Duration(7 * 86_400_000)
    duplicate_horizon: Duration = Duration(7 * 86_400_000)
    seed: Secret | None = None
    prior: Prior = Prior()
    watch: bool = True
    tolerance: float = MonitorSettings().tolerance
    alpha: float = MonitorSettings().alpha
    false_alarm_pairs: int = MonitorSettings().false_alarm_pairs
    windows: tuple[Duration, ...] | None = None


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    max_tenants: Count = 500


class Tenants(msgspec.Struct, frozen=True, kw_only=True):
    """``named`` tables are complete: what they did not say was taken from ``default``."""

    accept_unknown: bool = True
    default: TenantTable = TenantTable()
    named: dict[str, TenantTable] = {}


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a process is told. Made by ``config.load``, which has checked all of it."""

    kafka: Kafka = msgspec.field(default_factory=Kafka)
    topics: Topics = Topics()
    redis: Redis = Redis()
    avro: Avro = Avro()
    processing: Processing = Processing()
    http: Http = Http()
    log: Log = Log()
    limits: Limits = Limits()
    metrics: Metrics = Metrics()
    tenants: Tenants = Tenants()


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
