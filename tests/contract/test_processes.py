"""The registry of processes: a name has one user at a time, in memory, on a server and on a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from uuid import uuid4

import msgspec
import pytest

from processor.adapters.memory.processes import MemoryProcesses
from processor.adapters.redis.processes import RedisProcesses
from processor.ports.processes import EXPIRY_MS, FORM, ForeignProcess, Process, Processes, read
from processor.ports.store import StoreUnavailableError, StoreUnusableError
from tests.servers.redis_server import RedisCluster, RedisServer, free_port


@dataclass
class Registry:
    """A registry that knows nothing of others, with what only a test may do."""

    processes: Processes
    put: Callable[[str, bytes], None]
    find: Callable[[str], bytes | None]
    remaining: Callable[[str], int]
    """milliseconds until the record of this instance is gone"""


@pytest.fixture(params=["memory", "redis", "redis-cluster"])
def registry(request: pytest.FixtureRequest) -> Iterator[Registry]:
    if request.param == "memory":
        memory = MemoryProcesses(lambda: time.monotonic_ns() // 1_000_000)

        def put(instance: str, text: bytes) -> None:
            memory.records[instance] = (text, 2**62)

        def remaining(instance: str) -> int:
            return memory.records[instance][1] - time.monotonic_ns() // 1_000_000

        yield Registry(memory, put, memory.find, remaining)
        return
    in_cluster = request.param == "redis-cluster"
    which: RedisServer | RedisCluster = request.getfixturevalue("cluster" if in_cluster else "server")
    prefix = f"test-{uuid4().hex}"
    redis = RedisProcesses(which.url, prefix, cluster=in_cluster)
    yield Registry(
        redis,
        lambda instance, text: redis._link.call(lambda client: client.set(redis.key(instance), text)),
        lambda instance: redis._link.call(lambda client: client.get(redis.key(instance))),
        lambda instance: redis._link.call(lambda client: client.pttl(redis.key(instance))),
    )
    redis.close()


def process(token: str = "ours", instance: str = "one") -> Process:
    return Process(
        instance=instance,
        host="host-1",
        pid=17,
        kernel="boot pid:[1]",
        start="1234",
        http="127.0.0.1:9464",
        version="0.2.0",
        started=1_000,
        refreshed=1_000,
        token=token,
    )


def test_a_free_name_is_taken_with_an_expiry(registry: Registry) -> None:
    assert registry.processes.hold(process()) is None
    assert registry.find("one") == process().encode()
    assert 0 < registry.remaining("one") <= EXPIRY_MS


def test_a_name_that_somebody_has_stays_with_them_and_they_are_told(registry: Registry) -> None:
    registry.processes.hold(process("theirs"))
    assert registry.processes.hold(process()) == process("theirs").encode()
    assert registry.find("one") == process("theirs").encode()


def test_the_own_record_is_refreshed(registry: Registry) -> None:
    registry.processes.hold(process())
    later = msgspec.structs.replace(process(), refreshed=2_000)
    assert registry.processes.hold(later) is None
    assert registry.find("one") == later.encode()


def test_a_record_is_replaced_only_if_it_is_the_one_that_was_seen(registry: Registry) -> None:
    registry.processes.hold(process("dead"))
    assert registry.processes.hold(process("third"), instead_of="another") == process("dead").encode()
    assert registry.processes.hold(process("ours"), instead_of="dead") is None
    assert registry.processes.hold(process("third"), instead_of="dead") == process("ours").encode()


def test_only_the_own_record_is_deleted(registry: Registry) -> None:
    registry.processes.hold(process("theirs"))
    registry.processes.release(process("ours"))
    assert registry.find("one") == process("theirs").encode()
    registry.processes.release(process("theirs"))
    assert registry.find("one") is None
    registry.processes.release(process("theirs"))


def test_every_name_has_a_record_of_its_own(registry: Registry) -> None:
    for instance in ("one", "two", "{one}", "ü:*"):
        assert registry.processes.hold(process(instance, instance)) is None
    assert registry.find("{one}") == process("{one}", "{one}").encode()


STRANGERS = [
    b'{"form":2,"token":"ours"}',
    b'{"form":2,"token":"ours","instance":"one","host":"h"}',
    b'{"form":"1","token":"ours"}',
    b"not JSON",
    b"[1]",
    b"7",
    b"",
]


@pytest.mark.parametrize("text", STRANGERS)
def test_what_is_of_a_later_form_or_not_ours_is_somebody_and_is_never_overwritten(
    registry: Registry, text: bytes
) -> None:
    registry.put("one", text)
    assert registry.processes.hold(process()) == text
    assert registry.processes.hold(process(), instead_of="ours") == text
    registry.processes.release(process())
    assert registry.find("one") == text
    assert isinstance(read(text), ForeignProcess)


def test_a_record_is_read_as_it_was_written_and_unknown_fields_are_ignored() -> None:
    assert read(process().encode()) == process()
    assert read(process().encode()[:-1] + b',"partitions":[1,2]}') == process()
    assert msgspec.json.decode(process().encode())["form"] == FORM


def test_a_store_that_is_away_is_unavailable_and_one_without_rights_unusable(own: RedisServer) -> None:
    nowhere = RedisProcesses(f"redis://:s3cr3t@127.0.0.1:{free_port()}", "app")
    with pytest.raises(StoreUnavailableError) as caught:
        nowhere.hold(process())
    assert "s3cr3t" not in str(caught.value)
    nowhere.close()
    with own.client() as client:
        client.execute_command("ACL SETUSER little on >pass ~{app:* +@all")
    little = RedisProcesses(f"redis://little:pass@127.0.0.1:{own.port}", "app")
    with pytest.raises(StoreUnusableError, match="lacks rights"):
        little.hold(process())
    little.close()
