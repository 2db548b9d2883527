"""On a real cluster of three: the wrong setting is named, nodes die and states move, and no half of one is seen."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest

from processor.core.stream.writes import SetEntry, SetField, SetSlot
from processor.ports.store import StoreUnavailableError, StoreUnusableError
from tests.servers.redis_server import RedisCluster, RedisServer

from .backends import LEFT_OPEN, OURS, at, content, number, opened, packed, waiting, whole
from .backends import close_what_was_opened as close_what_was_opened


@pytest.fixture
def collected() -> Iterator[None]:
    """redis-py's cluster client forgets the connections of a lost node without closing them: collect them here."""
    yield
    while LEFT_OPEN:
        LEFT_OPEN.pop().close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def test_taking_a_cluster_for_a_server_or_a_server_for_a_cluster_names_the_remedy(
    own: RedisServer, cluster: RedisCluster
) -> None:
    with pytest.raises(StoreUnusableError, match="Set cluster to false"):
        opened(own.url, cluster=True)
    other = next(node for node in cluster.nodes if node is not cluster.owner("{app:0}:meta"))
    with pytest.raises(StoreUnusableError, match="Set cluster to true"):
        opened(other.url)


@pytest.mark.usefixtures("collected")
def test_a_killed_node_is_unavailable_and_then_has_what_it_answered_for(cluster: RedisCluster) -> None:
    store = opened(cluster.url, cluster=True)
    store.wipe(0, OURS)
    store.apply(0, OURS, at(1), 0, packed(SetField(b"f", b"1")))
    node = cluster.owner("{app:0}:meta")
    cluster.kill(node)
    with pytest.raises(StoreUnavailableError):
        store.look_up(0, OURS, [], 0, 0)
    cluster.restart(node)
    assert whole(store) == (at(1), packed(SetField(b"f", b"1")))


@pytest.mark.usefixtures("collected")
def test_half_of_a_state_is_never_seen_while_a_cluster_moves_it(cluster: RedisCluster) -> None:
    store = opened(cluster.url, cluster=True, timeout=2)
    store.wipe(0, OURS)
    everything = packed(SetEntry(number(1), b"a"), SetField(b"f", b"1"), SetSlot(3, 1, number(1)))
    store.apply(0, OURS, at(1), 0, everything)
    source = cluster.owner("{app:0}:meta")
    target = next(node for node in cluster.nodes if node is not source)
    with source.client() as here, target.client() as there:
        slot = here.execute_command("CLUSTER KEYSLOT", "{app:0}:meta")
        names = {node: node_client.execute_command("CLUSTER MYID") for node, node_client in ((0, here), (1, there))}
        there.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", names[0])
        here.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", names[1])
        for key in ("meta", "fields", "slots", "entries", "slab:3"):
            here.execute_command("MIGRATE", "127.0.0.1", target.port, f"{{app:0}}:{key}", 0, 2000)
            try:
                view = store.look_up(0, OURS, [number(1)], 3, 9)
            except StoreUnavailableError:
                continue
            assert (view.entries, waiting(view)) == ([b"a"], {3: [(number(1), b"a")]})
        for client in (there, here):
            client.execute_command("CLUSTER SETSLOT", slot, "NODE", names[1])
    assert content(whole(store)[1]) == content(everything)
