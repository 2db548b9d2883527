"""On a cluster, too, the rights of the manual are enough: for the state of partitions and for the registry."""

from __future__ import annotations

from uuid import uuid4

from processor.adapters.redis.processes import RedisProcesses
from processor.adapters.redis.store import RedisStore
from processor.core.stream.writes import SetEntry, SetField, SetSlot
from processor.ports.processes import Process
from processor.ports.store import Applied
from tests.servers.redis_server import RedisCluster
from tests.servers.secured import MANUAL

from .backends import LEFT_OPEN, OURS, at, number, packed, whole
from .backends import close_what_was_opened as close_what_was_opened
from .test_processes import process


def test_a_cluster_lets_the_processor_do_what_the_manual_says(cluster: RedisCluster) -> None:
    prefix, user = f"test-{uuid4().hex}", f"user-{uuid4().hex}"
    manual = MANUAL.read_text("utf-8")
    line = next(line for line in manual.splitlines() if "ACL SETUSER gforce" in line)
    more = next(line for line in manual.splitlines() if line.startswith("A cluster also needs ")).split("`")[1::2]
    words = line.replace("<prefix>", prefix).replace("gforce", user, 1).split()
    for node in cluster.nodes:
        with node.client() as client:
            client.execute_command(*words, *more)
            client.execute_command("ACL", "LOG", "RESET")
    url = cluster.url.replace("://", f"://{user}:password@")
    registry, store = RedisProcesses(url, prefix, cluster=True), RedisStore(url, prefix, cluster=True)
    LEFT_OPEN.append(store)
    ours: Process = process()
    assert registry.hold(ours) is None
    assert registry.hold(process("theirs")) == ours.encode()
    registry.release(ours)
    assert registry.hold(process("theirs")) is None
    registry.close()
    store.check()
    assert store.doubts == ()
    for partition in range(4):
        store.claim(partition, OURS)
        writes = packed(SetEntry(number(1), b"a"), SetField(b"f", b"1"), SetSlot(3, 1, number(1)))
        assert store.fill(partition, OURS, at(1), 0, writes) is Applied.DONE
        assert store.look_up(partition, OURS, [number(1)], 3, 9).entries == [b"a"]
        assert list(store.fields(partition, OURS)) == [(b"f", b"1")]
        assert whole(store, partition)[0] == at(1)
        assert store.peek(partition, [b"f"]) == (at(1), {b"f": b"1"})
        assert store.peek_all(partition, "*") == [(b"f", b"1")]
        store.wipe(partition, OURS)
    for node in cluster.nodes:
        with node.client() as client:
            assert client.execute_command("ACL", "LOG") == []
            client.execute_command("ACL", "DELUSER", user)
