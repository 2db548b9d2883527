"""The state of partitions in Redis, Valkey or a cluster of either: one Lua script for each call.

Only ``fill`` is a transaction of plain commands, with a script at its end.

All keys of partition p carry the hash tag ``{prefix:p}``, so that they live on one node:

    {prefix:p}:meta         hash: who has claimed the partition (token), which state this is (identity), how many
                            entries, fields and slots that has (sizes)
    {prefix:p}:entries      hash: id -> entry
    {prefix:p}:fields       hash: name -> state field
    {prefix:p}:slab:<slot>  hash: sequence (8 bytes) -> ids (16 bytes each)
    {prefix:p}:slots        sorted set: the slots that have a slab
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import chain
from struct import Struct
from typing import Any, TypeVar

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ExecAbortError,
    MovedError,
    NoScriptError,
    RedisClusterException,
    RedisError,
    ResponseError,
    WatchError,
)

from processor.adapters.redis.connecting import Address, MasterUnknownError, RedisConnection, named
from processor.adapters.redis.entries import command, split_commands
from processor.core.stream.expiry import DueSlot
from processor.core.stream.writes import ID_BYTES, SetField, unpack
from processor.ports.store import (
    Applied,
    Identity,
    LookupResult,
    SnapshotPage,
    StoreDamagedError,
    StoreError,
    StoreFencedError,
    StoreUnavailableError,
    StoreUnusableError,
    verdict,
)

T = TypeVar("T")

FIELDS_PAGE = 1 << 20
"""bytes of state fields read by one script: long enough to be efficient, short enough not to block the server"""


@dataclass(frozen=True, slots=True)
class Script:
    text: str
    sha: str


@cache
def script(name: str) -> Script:
    """A script from the package, with what they all begin with."""
    folder = resources.files(__package__) / "lua"
    text = "".join((folder / f"{part}.lua").read_text("utf-8") for part in ("partition", name))
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


class RedisStore:
    """Connects on the first call, and again whenever it must; see ``Store`` for the contract.

    ``doubts`` says, after ``check``, what could not be checked for want of rights: sentences to show to a person.
    """

    def __init__(self, url: str, prefix: str, cluster: bool = False, timeout: float = 5.0) -> None:
        if "{" in prefix or "}" in prefix:
            raise StoreUnusableError(f'The key prefix "{prefix}" contains a brace, which Redis Cluster would misread.')
        self.doubts: tuple[str, ...] = ()
        self._link = RedisConnection(url, cluster, timeout)
        self._address = self._link.address
        self._cluster = cluster
        self._prefix = prefix

    def __repr__(self) -> str:
        return f"RedisStore({self._address}, prefix={self._prefix!r})"

    def claim(self, partition: int, token: bytes) -> None:
        self._run("claim", partition, token)

    def look_up(
        self, partition: int, token: bytes, ids: Sequence[bytes], due: int, most: int, sweep: int | None = None
    ) -> LookupResult:
        arguments = (token, b"".join(ids), due, most, -1 if sweep is None else sweep)
        text, entries, slots = self._run("look_up", partition, *arguments)
        taken = {int(slot): _due_slot(content, pieces, bool(whole)) for slot, content, pieces, whole in slots}
        return LookupResult(self._identity(partition, text), list(chain.from_iterable(entries)), taken)

    def apply(self, partition: int, token: bytes, after: Identity, before: int, writes: bytes) -> Applied:
        return Applied(self._run("apply", partition, token, after.text(), before, writes, "").decode())

    def fill(self, partition: int, token: bytes, after: Identity, before: int, writes: bytes) -> Applied:
        """A transaction of plain commands: an HSET costs the server a third of what a script that unpacks it does.

        Token and identity are read under WATCH, so the transaction is refused if either has changed since. The script
        comes last in it, with everything but the entries, and writes the identity. A cluster that moves keys about
        needs the checks of the script, and gets it.
        """
        if self._cluster:
            return self.apply(partition, token, after, before, writes)
        parts = split_commands(writes)
        keys = self._keys(partition)
        meta, entries = keys[:2]
        others = b"".join(parts.others)
        last = command("EVAL", script("apply").text, len(keys), *keys, token, after.text(), before, others, "1")
        commands = [*parts.commands(entries), last]

        def call(client: Any) -> Applied:
            with client.pipeline() as pipeline:
                pipeline.watch(meta, entries)
                owner, text, sizes = pipeline.hmget(meta, "token", "identity", "sizes")
                if owner != token:
                    raise self._fenced(partition)
                self._check_entries(partition, text, sizes, pipeline.hlen(entries))
                answer = verdict(self._identity(partition, text), before, after)
                if answer is not Applied.DONE:
                    return answer
                return Applied(_transaction(pipeline.connection, commands)[-1].decode())

        return self._call(call, partition)

    def _check_entries(self, partition: int, text: bytes | None, sizes: bytes | None, entries: int) -> None:
        """What the script of ``apply`` cannot check after entries have been written: that all were there before."""
        identity = self._identity(partition, text)
        left = (sizes or b"").decode().split(":")
        if identity is not None and left[:2] == ["1", str(identity.sequence)] and left[2] != str(entries):
            raise self._damaged(partition, f"{left[2]} entries were left and {entries} are there")

    def fields(self, partition: int, token: bytes) -> Iterator[tuple[bytes, bytes]]:
        seen: set[bytes] = set()
        cursor, first = b"", None
        while True:
            text, cursor, writes, moved = self._run("page", partition, token, cursor, FIELDS_PAGE, "fields")
            first = first or (text,)
            if moved == b"1" or first != (text,):
                raise StoreUnavailableError(
                    f"{self._address}: partition {partition} changed while its fields were read."
                )
            for write in unpack(writes):
                if isinstance(write, SetField) and write.name not in seen:  # HSCAN may repeat itself
                    seen.add(write.name)
                    yield write.name, write.value
            if not cursor:
                return

    def page(self, partition: int, token: bytes, cursor: bytes, most: int) -> tuple[Identity | None, SnapshotPage]:
        text, cursor, writes, _ = self._run("page", partition, token, cursor, max(most, 1), "slabs")
        return self._identity(partition, text), SnapshotPage(cursor, writes)

    def wipe(self, partition: int, token: bytes) -> None:
        self._run("wipe", partition, token, int(self._cluster))

    def peek(self, partition: int, names: Sequence[bytes] = ()) -> tuple[Identity | None, dict[bytes, bytes]]:
        """The identity and these fields at one moment, whoever owns the partition: for people to look at."""
        text, values = self._run("peek", partition, b"", *names)
        found = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        return self._identity(partition, text), found

    def peek_all(self, partition: int, pattern: str) -> list[tuple[bytes, bytes]]:
        """All fields whose name matches the glob, a page at a time, so that the owner is not held up."""
        key = f"{{{self._prefix}:{partition}}}:fields"
        return self._call(lambda client: list(client.hscan_iter(key, pattern, 1_000)), partition)

    def versions(self) -> dict[str, str]:
        """What each server says it is."""
        return self._call(lambda client: {name: _version(one) for name, one in self._servers(client).items()})

    def check(self) -> None:
        """Raise StoreUnusableError if this server must not be used; ``doubts`` has what we were not allowed to see."""
        self._call(lambda client: client.ping())
        if self._run("probe", 0, b"", _PROBE) != _PROBE:
            raise StoreUnusableError(f"{self._address} does not run Lua scripts as Redis does. Use Redis or Valkey.")
        policies = self._policies()
        self.doubts = tuple(
            f"{name} does not let us read its maxmemory-policy." for name in policies if not policies[name]
        )
        if unsafe := _unsafe(policies):
            raise StoreUnusableError(unsafe)

    def unsafe(self) -> str:
        """Why a server could silently drop state, as a sentence with the remedy; empty if none could."""
        return _unsafe(self._policies())

    def close(self) -> None:
        self._link.close()

    def _policies(self) -> dict[str, str | None]:
        """The memory policy of each server; None where we may not know it."""
        return self._call(lambda client: {name: _policy(one) for name, one in self._servers(client).items()})

    def _servers(self, client: Any) -> dict[str, Any]:
        """A client for every server that holds state, by the name to show."""
        if not self._cluster:
            return {named(self._address, client): client}
        return {node.name: client.get_redis_connection(node) for node in client.get_primaries()}

    def _identity(self, partition: int, text: bytes | None) -> Identity | None:
        if text is None:
            return None
        identity = Identity.parse(text.decode())
        if identity is None:
            raise self._foreign(partition)
        return identity

    def _foreign(self, partition: int | None) -> StoreUnusableError:
        return StoreUnusableError(
            f'{self._address}: the state of partition {partition} at prefix "{self._prefix}" was written by another '
            "version. Use that version, or another prefix: the state is then restored from the log.",
            partition,
        )

    def _damaged(self, partition: int | None, what: str) -> StoreDamagedError:
        return StoreDamagedError(
            f"{self._address}: keys or entries of partition {partition} were deleted or evicted ({what}). It is "
            "restored from the changelog; find out who deletes, and set maxmemory-policy to noeviction."
        )

    def _fenced(self, partition: int | None) -> StoreFencedError:
        return StoreFencedError(f"Partition {partition} has been claimed by another process.")

    def _keys(self, partition: int) -> list[str]:
        """What every script is given."""
        tag = f"{{{self._prefix}:{partition}}}"
        return [f"{tag}:{key}" for key in ("meta", "entries", "fields", "slots")]

    def _run(self, name: str, partition: int, *arguments: bytes | str | int) -> Any:
        """Run a script on the keys of a partition."""
        keys = self._keys(partition)
        which = script(name)

        def call(client: Any) -> Any:
            try:
                return client.evalsha(which.sha, len(keys), *keys, *arguments)
            except NoScriptError:
                return client.eval(which.text, len(keys), *keys, *arguments)

        return self._call(call, partition)

    def _call(self, ask: Callable[[Any], T], partition: int | None = None) -> T:
        """Connect if necessary and ask; what goes wrong becomes one of the errors of the contract."""
        try:
            return self._link.call(ask)
        except (RedisError, RedisClusterException, OSError) as error:
            text = str(error)
            if text.startswith("FENCED"):
                raise self._fenced(partition) from None
            if text.startswith("DAMAGED"):
                raise self._damaged(partition, text[len("DAMAGED ") :]) from None
            if "the slab of slot" in text and not self._cluster:  # the library cuts TRYAGAIN from the message
                raise self._damaged(partition, "a slab that is listed is not there: " + text) from None
            if text.startswith("UNREADABLE"):
                raise self._foreign(partition) from None
            if text.startswith("MALFORMED"):
                raise ValueError(text) from None
            raise translated(error, self._address) from error


def _transaction(connection: Any, commands: Sequence[bytes]) -> list[Any]:
    """The answers to commands that are already in the form of the wire, all run or none.

    The library would look at every argument; there are tens of thousands.
    """
    connection.send_packed_command([command("MULTI"), *commands, command("EXEC")])
    refused = []
    for _ in range(1 + len(commands)):
        try:
            connection.read_response()
        except ResponseError as error:
            refused.append(error)
    try:
        answers: list[Any] | None = connection.read_response()
    except ExecAbortError:
        raise refused[0] from None
    if answers is None:
        raise WatchError("somebody else wrote meanwhile")
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers


_PROBE = b"\0\0\0\1"


def _policy(server: Any) -> str | None:
    """The server's memory policy, or None if we may not know: managed services forbid CONFIG, some also INFO."""
    try:
        policy = server.info("memory").get("maxmemory_policy")
        return str(policy or server.config_get("maxmemory-policy")["maxmemory-policy"])
    except (ResponseError, KeyError):
        return None


def _unsafe(policies: Mapping[str, str | None]) -> str:
    return " ".join(
        f"{name} has maxmemory-policy {policy} and would silently drop state when it is full. "
        "Set maxmemory-policy to noeviction."
        for name, policy in policies.items()
        if policy not in (None, "noeviction")
    )


def _version(server: Any) -> str:
    try:
        info = server.info("server")
    except ResponseError:
        return "does not say"
    return f"{info.get('server_name', 'redis')} {info.get('valkey_version') or info.get('redis_version')}"


_IDS = Struct(f"{ID_BYTES}s")


def _due_slot(content: list[bytes], pieces: list[list[bytes | None]], whole: bool) -> DueSlot:
    """The parts that were taken, with the entries of their ids."""
    ids = chain.from_iterable(_IDS.iter_unpack(b"".join(content[1::2])))
    entries = dict(zip(ids, chain.from_iterable(pieces), strict=True))
    sequences = tuple(int.from_bytes(sequence, "big") for sequence in content[::2])
    return DueSlot(list(entries.items()), sequences, whole)


_MENDABLE = {
    "OOM": "It is full. Raise maxmemory, or keep fewer pending decisions (shorter horizons).",
    "MISCONF": "It cannot save to its disk and refuses writes. Look at its log and its disk.",
}
"""What a person can put right while we wait: until then partitions stand still, with this as the reason."""
_REMEDIES = {
    "NOAUTH": "It wants a password. Put user and password into the address.",
    "WRONGPASS": "Correct user and password in the address.",
    "NOPERM": "The user lacks rights. Allow scripts, transactions, hash and sorted-set commands on its keys.",
    "WRONGTYPE": "Something else uses keys of the same name. Choose another prefix.",
    "MOVED": "It is part of a cluster. Set cluster to true.",
    "Cluster mode is not enabled": "It is no cluster. Set cluster to false.",
    "CERTIFICATE_VERIFY_FAILED": "Its certificate is not trusted. Add ssl_ca_certs=<file> to the address.",
}
_PASSING = re.compile(
    "BUSY|LOADING|READONLY|CLUSTERDOWN|MASTERDOWN|TRYAGAIN|NOREPLICAS|UNBLOCKED|non local key|max number of clients"
)
_LASTING = re.compile("|".join(_REMEDIES))
"""Searched anywhere in the message: Redis before 7 wraps what happens inside a script."""


def translated(error: Exception, address: Address) -> StoreError:
    """What the caller must do about an error of the client library."""
    code = getattr(error, "status_code", None)  # the library cuts it from the message
    text = address.clean(f"{code} {error}" if code else str(error))
    if isinstance(error, MasterUnknownError):
        if error.refused:
            return StoreUnusableError(
                f"{address}: {text}. Put sentinel_username and sentinel_password into the address."
            )
        return StoreUnavailableError(f"{address}: {text}. Are the sentinels up, and is that their name for it?")
    if isinstance(error, MovedError):
        text = f"MOVED {text}"
    elif isinstance(error, (AuthenticationError, AuthorizationError)) and not _LASTING.search(text):
        text = f"WRONGPASS {text}"
    if found := re.search("|".join(_MENDABLE), text):
        return StoreUnavailableError(f"{address}: {text}. {_MENDABLE[found[0]]}")
    if found := _LASTING.search(text):
        return StoreUnusableError(f"{address}: {text}. {_REMEDIES[found[0]]}")
    if not isinstance(error, ResponseError) or _PASSING.search(text):
        return StoreUnavailableError(f"{address}: {text or type(error).__name__}")
    return StoreUnusableError(f"{address} refuses: {text}")
