"""What Redis does: demoted, slow, stopped, with a policy that drops state."""

from __future__ import annotations

import os
import signal
import time

from tests.servers.redis_server import LOOPBACK, RedisServer
from tests.servers.tcp_proxy import TcpProxy

from .registry import scenario
from .stage import Stage

SLOW_SECONDS = 1.5
SLOW_PARTITIONS = 16
SLOW_FOR = 60.0
"""seconds: every partition has its turn twice even where Redis is asked one call after the other"""
STOPPED_SECONDS = 20.0
NOTICED = 6.0
"""Seconds: the timeout of a call, another's, and a look."""
POLICY_NOTICED = 75.0
"""seconds until a changed maxmemory-policy must be seen"""


@scenario
def demoted_master(stage: Stage) -> None:
    """The Redis master is demoted and answers READONLY, the address leads to the new one: it goes on by itself."""
    first, second = RedisServer(own=True).start(), RedisServer(own=True).start()
    stage.servers_of_its_own.callback(first.stop)
    stage.servers_of_its_own.callback(second.stop)
    proxy = stage.servers_of_its_own.enter_context(TcpProxy(first.port))
    with second.client() as client:
        client.replicaof(LOOPBACK, first.port)
        stage.wait(lambda: client.info("replication")["master_link_status"] == "up", 20)
    stage.redis_url = proxy.url
    stage.open()
    stage.quiet = 20.0
    stage.run()
    load = stage.load()
    time.sleep(4)
    with second.client() as client:
        client.replicaof("NO", "ONE")
    proxy.move(second.port)
    with first.client() as client:
        client.replicaof(LOOPBACK, second.port)
    since = time.monotonic()
    time.sleep(2)
    told = [look for look in stage.supervisor.looks if look.at > since and look.page.status == 503]
    stage.see(
        f"/readyz 503 {len(told)} times in 2 s: {(list(told[0].trouble.values()) or ['-'])[0][:120] if told else '-'}"
    )
    goes_on = stage.wait(lambda: _all_move(stage, since + 2), 25)
    stage.see(f"all partitions decide again: {goes_on}, {time.monotonic() - since:.1f} s after the demotion")
    stage.check(goes_on, "25 s after the demotion not every partition decides again")
    time.sleep(2)
    load.stop()


def _all_move(stage: Stage, since: float) -> bool:
    return all(stage.reader.times[p] and stage.reader.times[p][-1] > since for p in range(stage.partitions))


@scenario
def slow_redis(stage: Stage) -> None:
    """Redis answers 1.5 s late each time: progress on every partition, no producer error."""
    proxy = stage.servers_of_its_own.enter_context(TcpProxy(stage.servers.redis.port))
    stage.redis_url = proxy.url
    stage.partitions = SLOW_PARTITIONS  # in one transaction they would outlast its timeout
    stage.open({"redis": {"timeout_ms": 5_000}})
    stage.quiet = 45.0
    stage.run()
    before = stage.processors[0].get("/status").json["totals"]
    load = stage.load()
    time.sleep(2)
    proxy.delay = SLOW_SECONDS
    since = time.monotonic()
    time.sleep(SLOW_FOR)
    moves = {p: sum(at > since for at in stage.reader.times[p]) for p in range(stage.partitions)}
    after = stage.processors[0].get("/status").json.get("totals", {})
    proxy.delay = 0.0
    time.sleep(2)
    load.stop()
    new = {name: after.get(name, 0) - before.get(name, 0) for name in ("recoveries", "transactions_aborted")}
    fatal = stage.logged("Fatal error")
    stage.see(f"commits seen per partition {moves}; {new}; {len(fatal)} fatal producer errors")
    stage.check(min(moves.values()) >= 2, f"not every partition progressed: {moves}")
    stage.check(not fatal, f"the producer became fatal {len(fatal)} times")
    stage.check(new["recoveries"] <= stage.partitions, f"{new['recoveries']} recoveries for one slow server")


@scenario
def stopped_redis(stage: Stage) -> None:
    """Redis is stopped for 20 s: not ready as soon as a call has failed, with the reason; then all is right."""
    stage.open({"redis": {"timeout_ms": 2_000}})
    stage.quiet = STOPPED_SECONDS + 15
    stage.run()
    load = stage.load()
    time.sleep(3)
    pid = stage.servers.redis.pid
    assert pid is not None
    since = time.monotonic()
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(STOPPED_SECONDS)
    finally:
        os.kill(pid, signal.SIGCONT)
    until = time.monotonic()
    looks = [look for look in stage.supervisor.looks if since < look.at < until]
    refused = [look for look in looks if look.page.status == 503]
    first = refused[0].at - since if refused else float("inf")
    reasons = [text for look in refused for text in look.trouble.values()]
    later = [look for look in looks if look.at > since + NOTICED]
    stage.see(f"/readyz 503 after {first:.1f} s, {len(refused)} of {len(looks)} looks: {(reasons or ['-'])[0][:120]}")
    stage.check(first <= NOTICED, f"/readyz was 503 only after {first:.1f} s; a call times out after 2 s")
    stage.check(all(look.page.status != 200 for look in later), "/readyz said 200 while Redis was stopped")
    stage.check(any("redis" in text.lower() for text in reasons), f"no reason names Redis: {reasons[:2]}")
    ready = stage.wait(lambda: len(stage.ready()) == stage.partitions, 20)
    stage.check(ready, f"20 s after Redis went on not all is ready: {stage.states_shown()}")
    time.sleep(3)
    load.stop()


@scenario
def eviction_policy_changed(stage: Stage) -> None:
    """maxmemory-policy is changed while it runs: gforce_store_unsafe is 1 and the log says so; and back."""
    stage.open()
    (processor,) = stage.run()
    load = stage.load()
    with stage.servers.redis.client() as client:
        try:
            client.config_set("maxmemory-policy", "allkeys-lru")
            since = time.monotonic()
            told = stage.wait(lambda: processor.metric("gforce_store_unsafe") == 1, POLICY_NOTICED)
            took = time.monotonic() - since
        finally:
            client.config_set("maxmemory-policy", "noeviction")
    lines = [line for line in stage.logged("maxmemory-policy") if line.get("level") in ("warning", "error")]
    stage.see(f"gforce_store_unsafe {'1' if told else 'not 1'} after {took:.0f} s; {len(lines)} lines in the log")
    stage.check(told, f"gforce_store_unsafe is not 1 {POLICY_NOTICED:.0f} s after the change")
    stage.check(lines, "no warning or error in the log names maxmemory-policy")
    if told:
        safe = stage.wait(lambda: processor.metric("gforce_store_unsafe") == 0, POLICY_NOTICED)
        stage.check(safe, f"gforce_store_unsafe is not 0 {POLICY_NOTICED:.0f} s after the policy was put back")
    load.stop()
