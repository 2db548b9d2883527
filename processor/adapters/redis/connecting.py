"""How to reach a Redis: one server, a cluster, or the master that sentinels name.

A connection is kept until it breaks, or until its server says READONLY: then it is a master that was demoted and still
answers, and all connections are dropped. The next call connects anew, which resolves the name or asks a sentinel.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from redis import Redis
from redis.backoff import ConstantBackoff, NoBackoff
from redis.cluster import RedisCluster
from redis.connection import parse_url
from redis.exceptions import AuthenticationError, ConnectionError, RedisClusterException, RedisError
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel

from processor.ports.store import StoreUnusableError

T = TypeVar("T")

SCHEMES = ("redis", "rediss", "unix")
SENTINEL_SCHEMES = ("redis+sentinel", "rediss+sentinel")
SENTINEL_PORT = 26379
SENTINEL_TIMEOUT = 1.0
"""Seconds at most until the next sentinel is asked: another one knows the same."""
_SENTINEL_OPTION = "sentinel_"
"""Query parameters that begin so are for the connections to the sentinels, the others for those to the data."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server is, without the secrets of its URL; ``secrets`` are cut out of whatever a library says."""

    shown: str
    secrets: tuple[str, ...] = field(repr=False)

    @classmethod
    def of(cls, url: str) -> Address:
        """
        >>> print(Address.of("rediss://me:hunter2@cache.example:6380/3"))
        rediss://cache.example:6380/3
        >>> print(Address.of("redis+sentinel://me:hunter2@s1,s2:26380/mymaster/0?sentinel_password=hunter3"))
        redis+sentinel://s1:26379,s2:26380/mymaster/0
        """
        try:
            parts = urlsplit(url)
            shown = _shown(parts)
        except ValueError:
            raise bad_url() from None
        given = parse_qs(parts.query)
        secrets = [parts.password or "", *(text for name in given if "password" in name for text in given[name])]
        known = {secret for raw in secrets for secret in (raw, unquote(raw)) if secret}
        return cls(shown, tuple(known))

    def __str__(self) -> str:
        return self.shown

    def clean(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def _shown(parts: SplitResult) -> str:
    if parts.scheme in SENTINEL_SCHEMES:
        watched = _watched(parts)
        return f"{parts.scheme}://{','.join(map(_place, watched.sentinels))}/{watched.name}/{watched.database}"
    host, port = parts.hostname, parts.port
    if parts.scheme not in SCHEMES or not (host or parts.scheme == "unix"):
        raise ValueError
    netloc = "" if parts.scheme == "unix" else f"[{host}]" if host and ":" in host else host or ""
    return f"{parts.scheme}://{netloc}{f':{port}' if port else ''}{parts.path}"


def _place(sentinel: tuple[str, int]) -> str:
    host, port = sentinel
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True)
class _Watched:
    """A master that sentinels watch, by the name they have for it."""

    sentinels: tuple[tuple[str, int], ...]
    name: str
    database: int


def _watched(parts: SplitResult) -> _Watched:
    """What a URL of sentinels says; raises ValueError."""
    places = parts.netloc.rpartition("@")[2].split(",")
    name, _, database = parts.path.removeprefix("/").partition("/")
    if not name:
        raise ValueError
    return _Watched(tuple(map(_sentinel, places)), unquote(name), int(database or 0))


def _sentinel(place: str) -> tuple[str, int]:
    parts = urlsplit(f"//{place}")
    if not parts.hostname:
        raise ValueError
    return parts.hostname, parts.port or SENTINEL_PORT


def bad_url() -> StoreUnusableError:
    return StoreUnusableError(
        "The address of the store cannot be read (it is not shown, as it may hold a password). Write "
        "redis://[user:password@]host:port/db or rediss://..., or redis+sentinel://[user:password@]host:port,host:port/"
        "name-of-the-master/db, with special characters percent-encoded."
    )


class RedisConnection:
    """Connects on the first call, and again whenever it must. Several threads may call at once."""

    def __init__(self, url: str, cluster: bool, timeout: float) -> None:
        """``timeout`` in seconds, of each call."""
        self.address = Address.of(url)
        self._connect = _connector(url, cluster, timeout)
        self._lock = threading.Lock()
        self._client: Any = None  # Redis or RedisCluster, which share no type

    def call(self, ask: Callable[[Any], T]) -> T:
        """Ask with a connected client; raises what the library raises."""
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            client = self._client
        try:
            return ask(client)
        except (RedisError, RedisClusterException, OSError) as error:
            # Anywhere in the message: Redis before 7 wraps what happens inside a script.
            if "READONLY" in str(error) or "READONLY" in str(getattr(error, "status_code", "")):
                self._drop(client)
            raise

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _drop(self, client: Any) -> None:
        """Never use the connections of this client again. Those that another thread waits on end with its call."""
        with self._lock:
            if self._client is client:
                self._client = None
        for one in _pools(client):
            one.disconnect(inuse_connections=False)


def _pools(client: Any) -> list[Any]:
    if isinstance(client, RedisCluster):
        nodes = [node.redis_connection for node in client.get_nodes()]  # type: ignore[no-untyped-call]
        return [node.connection_pool for node in nodes if node is not None]
    asked = client.sentinels.sentinels if isinstance(client, _Master) else []
    return [one.connection_pool for one in (client, *asked)]


def _connector(url: str, cluster: bool, timeout: float) -> Callable[[], Any]:
    """How to connect. One more attempt on a broken connection, none on a timeout: that is the caller's decision."""
    options: dict[str, Any] = {"socket_timeout": timeout, "socket_connect_timeout": timeout, "protocol": 2}
    with_sentinels = urlsplit(url).scheme in SENTINEL_SCHEMES
    if with_sentinels and cluster:
        raise StoreUnusableError(
            "A cluster has no sentinels. Set cluster to false, or write redis://... as the address."
        )

    def connect() -> Any:
        once = Retry(ConstantBackoff(0.01), 1, supported_errors=(ConnectionError,))
        try:
            if cluster:
                return RedisCluster.from_url(url, retry=Retry(ConstantBackoff(0.1), 2), **options)
            if with_sentinels:
                return _master(url, {**options, "retry": once})
            return Redis.from_url(url, retry=once, **options)
        except ValueError:
            raise bad_url() from None

    return connect


def named(address: Address, client: Any) -> str:
    """A server by its address; one that sentinels named also by where it is now."""
    if not isinstance(client, _Master):
        return str(address)
    return f"{address} (now {_place(client.sentinels.discover_master(client.watched))})"


class MasterUnknownError(MasterNotFoundError):
    """No sentinel names a master that is up. ``refused``: one of them wants another password."""

    def __init__(self, name: str, reasons: Mapping[str, RedisError]) -> None:
        said = "; ".join(f"{place}: {error}" for place, error in reasons.items())
        super().__init__(f'No sentinel knows a master "{name}" that is up{f" ({said})" if said else ""}')
        self.refused = any(isinstance(error, AuthenticationError) for error in reasons.values())


class _Sentinels(Sentinel):
    """Says which sentinel failed and why; the library would show its objects."""

    def discover_master(self, service_name: str) -> tuple[str, int]:
        failed: dict[str, RedisError] = {}
        asked = list(self.sentinels)  # another thread may ask as well
        for sentinel in asked:
            try:
                masters: Any = sentinel.sentinel_masters()
                state = masters.get(service_name)
            except (RedisError, OSError) as error:
                known = sentinel.connection_pool.connection_kwargs
                failed[_place((known["host"], known["port"]))] = _as_redis_error(error)
                continue
            if state and self.check_master_state(state, service_name):  # type: ignore[no-untyped-call]
                self.sentinels = [sentinel, *(one for one in asked if one is not sentinel)]  # it is asked first now
                return state["ip"], state["port"]
        raise MasterUnknownError(service_name, failed)


def _as_redis_error(error: Exception) -> RedisError:
    return error if isinstance(error, RedisError) else ConnectionError(str(error))


class _Master(Redis):
    """A client of whoever is the master now; closes its sentinels' connections with its own."""

    sentinels: _Sentinels
    watched: str
    """the name the sentinels have for it"""

    def close(self) -> None:
        super().close()
        self.sentinels.close()


def _master(url: str, options: dict[str, Any]) -> Redis:
    """Of the master that the sentinels of this URL name: they are asked whenever a connection is made."""
    parts = urlsplit(url)
    watched = _watched(parts)
    tls = parts.scheme == "rediss+sentinel"
    user = parts.netloc.rpartition("@")[0]
    plain = f"redis://{f'{user}@' if user else ''}localhost?{parts.query}"
    given: dict[str, Any] = parse_url(plain)  # type: ignore[no-untyped-call]
    given.pop("host")
    asking = {name: given.pop(name) for name in list(given) if name.startswith(_SENTINEL_OPTION)}
    asking = {name.removeprefix(_SENTINEL_OPTION): value for name, value in asking.items()}
    if asking.pop("ssl", "false").lower() in ("true", "yes", "1"):
        asking |= {name: value for name, value in given.items() if name.startswith("ssl_")} | {"ssl": True}
    soon = min(options["socket_timeout"], SENTINEL_TIMEOUT)
    brief = {"socket_timeout": soon, "socket_connect_timeout": soon, "protocol": 2, "retry": Retry(NoBackoff(), 0)}
    sentinels = _Sentinels(watched.sentinels, sentinel_kwargs={**brief, **asking})  # type: ignore[no-untyped-call]
    data = {**given, **options, "db": watched.database, **({"ssl": True} if tls else {})}
    client: _Master = sentinels.master_for(watched.name, redis_class=_Master, **data)  # type: ignore[no-untyped-call]
    client.sentinels, client.watched = sentinels, watched.name
    return client
