"""The port of a processor under those who mean it harm: on a server that listens, with sockets that misbehave."""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from processor.core.errors import GForceError
from processor.operations.acknowledgement import acknowledged
from processor.operations.resumption import resumed
from processor.telemetry import http
from processor.telemetry.connections import RESERVED, ConnectionLimits
from processor.telemetry.http import HttpServer
from processor.telemetry.sharing import KEPT_AT_MOST, Shared
from processor.telemetry.status import PartitionStatus, Status
from tests.servers.redis_server import free_port

PATIENCE = 30.0
"""Seconds after which a test gives up."""
TOKEN = "known to operators"
BEARER = f"Authorization: Bearer {TOKEN}"
RESUME = "/partitions/0/resume"


@dataclass
class Port:
    """A server, what it was asked to do, and ways to talk to it that no library offers."""

    number: int
    server: Any = None
    resumed: list[int] = field(default_factory=list)
    acknowledged: list[tuple[str, int]] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    """of the server, in the log"""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.number}"

    @property
    def busy(self) -> int:
        """Requests that are being answered."""
        return len(self.server._server.server_state.tasks)

    @property
    def held(self) -> int:
        """Connections that the server has."""
        return len(self.server._server.server_state.connections)

    @property
    def answered(self) -> int:
        """Requests."""
        return int(self.server._server.server_state.total_requests)

    def connect(self, small: bool = False) -> socket.socket:
        made = socket.socket()
        if small:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        made.settimeout(PATIENCE)
        made.connect(("127.0.0.1", self.number))
        return made

    def send(self, sent: bytes) -> tuple[int, bytes]:
        """The status and everything that comes until the server closes."""
        with closing(self.connect()) as connection:
            with suppress(OSError):  # a server may close while it is still being sent to
                connection.sendall(sent)
            return answer_on(connection)

    def ask(self, path: str, *headers: str, method: str = "GET", host: str = "localhost") -> tuple[int, bytes]:
        lines = (f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close", *headers, "", "")
        return self.send("\r\n".join(lines).encode())


def answer_on(connection: socket.socket) -> tuple[int, bytes]:
    content = b""
    with suppress(ConnectionResetError):
        while piece := connection.recv(65_536):
            content += piece
    return int(content.split(b" ", 2)[1]) if content else 0, content


@contextmanager
def listening(host: str = "127.0.0.1", token: str | None = None, **settings: Any) -> Iterator[Port]:
    """A server whose log must stay empty: nobody from outside may fill it with tracebacks."""
    status = Status(ready=True, partitions=(PartitionStatus(0, "broken", "", 1, 1, 0, 0, 0, 0.0),))
    port = Port(free_port())
    listener = logging.Handler(logging.ERROR)
    listener.emit = lambda record: port.complaints.append(listener.format(record))  # type: ignore[method-assign]
    port.server = HttpServer(
        host,
        port.number,
        lambda: status,
        port.resumed.append,
        token,
        acknowledge=lambda tenant, number: port.acknowledged.append((tenant, number)),
        **settings,
    )
    loggers = [logging.getLogger(name) for name in ("uvicorn.error", "asyncio")]
    for logger in loggers:
        logger.addHandler(listener)
    port.server.start()
    try:
        yield port
    finally:
        port.server.stop()
        for logger in loggers:
            logger.removeHandler(listener)
    assert port.complaints == []


@pytest.fixture(scope="module")
def port() -> Iterator[Port]:
    with listening(allowed_hosts=["gforce.example", "*.internal"]) as made:
        yield made


@pytest.fixture(scope="module")
def locked() -> Iterator[Port]:
    with listening(token=TOKEN) as made:
        yield made


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)


def is_open(connection: socket.socket) -> bool:
    """Whether the server still has it; what it has said is left unread."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return not poll.poll(0)


def drip(connection: socket.socket, piece: bytes) -> bytes:
    """Send a little, again and again, until the server closes; what it said."""
    deadline = time.monotonic() + PATIENCE
    with suppress(ConnectionError):
        while is_open(connection):
            assert time.monotonic() < deadline, "the server waits for ever"
            connection.sendall(piece)
            time.sleep(0.02)
    return answer_on(connection)[1]


# Hosts


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:9464",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "localhost@evil.example",
        "evil.example@localhost",
        "evil.example/localhost",
        "internal",
        "evilinternal",
        "x.gforce.example",
        "192.0.2.7:9464",
        "0.0.0.0:9464",
        "[2001:db8::1]",
        "[::1",
        "localhost:9464:1",
        "",
    ],
)
def test_a_foreign_host_is_refused_and_the_answer_names_the_setting(port: Port, host: str) -> None:
    for path in ("/", "/healthz", "/readyz", "/metrics", "/status", "/api/overview", "/nowhere"):
        status, content = port.ask(path, host=host)
        assert (status, b"http.allowed_hosts" in content) == (421, True), path
    assert port.ask(RESUME, "X-Gforce: 1", "Sec-Fetch-Site: same-origin", method="POST", host=host)[0] == 421
    assert port.resumed == []


def test_a_request_without_a_host_is_refused(port: Port) -> None:
    assert port.send(b"GET /metrics HTTP/1.0\r\n\r\n")[0] == 421
    assert port.send(b"GET /metrics HTTP/1.1\r\n\r\n")[0] == 400


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:1",
        "localhost.",
        "127.0.0.1:9464",
        "127.0.0.2",
        "[::1]:9464",
        "[::1]",
        "gforce.example",
        "GForce.Example:80",
        "gforce.example.",
        "a.internal",
        "a.b.internal:9464",
    ],
)
def test_loopback_and_the_names_that_are_configured_are_answered(port: Port, host: str) -> None:
    assert port.ask("/metrics", host=host)[0] == 200


def test_where_it_listens_on_every_address_probes_ask_by_address_and_nobody_by_a_foreign_name() -> None:
    with listening("0.0.0.0") as made:
        for path, said in (("/healthz", b'"alive"'), ("/readyz", b'"partitions"'), ("/metrics", b"# HELP")):
            assert said in made.ask(path, host=f"10.1.2.3:{made.number}")[1]
            assert said in made.ask(path, host=f"[fd00::7]:{made.number}")[1]
            assert made.ask(path, host=f"evil.example:{made.number}")[0] == 421


def test_a_star_switches_the_check_of_hosts_off_and_no_other() -> None:
    with listening(allowed_hosts=["*"]) as made:
        assert made.ask("/metrics", host="any.example")[0] == 200
        assert made.ask(RESUME, method="POST", host="any.example")[0] == 403
        assert made.resumed == []


def test_the_command_says_which_setting_refuses_its_host() -> None:
    refused = pytest.raises(GForceError, match=r"http\.allowed_hosts, or give .* --url")
    with listening(host="localhost") as made, refused:
        resumed(f"http://0.0.0.0:{made.number}", 0)


# Changes


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ("Content-Type: application/x-www-form-urlencoded",),
        ("Content-Type: text/plain", "Origin: http://evil.example"),
        ("Origin: null",),
        ("Origin: http://localhost.evil.example",),
        ("Origin: http://[",),
        ("Origin: localhost",),
        ("Sec-Fetch-Site: cross-site",),
        ("Sec-Fetch-Site: same-site",),
        ("Sec-Fetch-Site: cross-site", "X-Gforce: 1", "Origin: http://localhost"),
    ],
)
def test_a_plain_form_of_another_site_changes_nothing(port: Port, headers: tuple[str, ...]) -> None:
    for path in (RESUME, "/tenants/acknowledge", "/partitions/0/a-route-of-the-future"):
        status, content = port.ask(path, *headers, method="POST")
        assert (status, b"X-Gforce: 1" in content, b"http.token" in content) == (403, True, True), path
    assert port.ask("/nowhere", *headers, method="DELETE")[0] == 403
    assert (port.resumed, port.acknowledged) == ([], [])


@pytest.mark.parametrize(
    "header",
    [
        "X-Gforce: 1",
        "Sec-Fetch-Site: same-origin",
        "Sec-Fetch-Site: none",
        "Origin: http://localhost",
        "Origin: https://LOCALHOST",
    ],
)
def test_what_shows_that_no_other_site_asks_is_obeyed(port: Port, header: str) -> None:
    assert port.ask(RESUME, header, method="POST")[0] == 202
    assert port.resumed.pop() == 0


def test_where_a_token_is_configured_only_the_token_is_obeyed(locked: Port) -> None:
    for path in (RESUME, "/tenants/acknowledge", "/partitions/0/a-route-of-the-future"):
        for headers in (("X-Gforce: 1", "Sec-Fetch-Site: same-origin"), ("Authorization: Bearer no",)):
            assert locked.ask(path, *headers, method="POST")[0] == 401
    assert locked.ask(RESUME, BEARER, "Sec-Fetch-Site: cross-site", method="POST")[0] == 403
    assert locked.resumed == []
    assert locked.ask(RESUME, BEARER, method="POST")[0] == 202
    assert locked.resumed.pop() == 0


def test_the_commands_need_no_token_where_none_is_configured(port: Port) -> None:
    assert resumed(port.url, 0).owned
    assert port.resumed.pop() == 0
    assert "does not have tenant" in acknowledged(port.url, "nobody", 1).text


# ConnectionLimits


def test_seven_hundred_slow_clients_hold_a_bounded_number_of_connections() -> None:
    with listening() as made, ExitStack() as stack:
        slow = []
        for _ in range(700):
            slow.append(stack.enter_context(closing(made.connect())))
            with suppress(OSError):
                slow[-1].sendall(b"GET / HTTP/1.1\r\nHost: loc")
        until(lambda: sum(is_open(one) for one in slow) <= 100 + RESERVED)
        for path in ("/healthz", "/metrics", "/"):
            assert made.ask(path)[0] == 200


def test_the_connection_that_has_been_idle_longest_gives_way_to_a_new_one() -> None:
    with listening(limits=ConnectionLimits(connections=2)) as made, ExitStack() as stack:
        first, second, *others = (stack.enter_context(closing(made.connect())) for _ in range(3 + RESERVED))
        status, content = answer_on(first)
        assert (status, b"http.max_connections" in content) == (503, True)
        second.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert answer_on(second)[0] == 200
        assert all(is_open(one) for one in others)


def test_when_all_connections_are_busy_probes_are_answered_and_others_told(monkeypatch: pytest.MonkeyPatch) -> None:
    going = threading.Event()
    monkeypatch.setattr(http, "generate_latest", lambda _: b"waited" if going.wait(PATIENCE) else b"")
    scrape = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with listening(limits=ConnectionLimits(connections=4)) as made, ExitStack() as stack:
        try:
            busy = [stack.enter_context(closing(made.connect())) for _ in range(4)]
            for one in busy:
                one.sendall(scrape)
            until(lambda: made.busy == 4)
            assert made.ask("/healthz")[0] == 200
            assert b'"partitions"' in made.ask("/readyz")[1]
            status, content = made.ask("/")
            assert (status, b"http.max_connections" in content) == (503, True)
            more = [stack.enter_context(closing(made.connect())) for _ in range(RESERVED)]
            for one in more:
                one.sendall(scrape)
            until(lambda: made.busy == 4 + RESERVED)
            status, content = made.ask("/healthz")
            assert (status, b"http.max_connections" in content) == (503, True)
        finally:
            going.set()
        for one in busy + more:
            assert answer_on(one)[1].endswith(b"waited")


QUICK = ConnectionLimits(request_seconds=0.3, answer_seconds=0.6)


def test_a_head_that_comes_byte_by_byte_is_given_up() -> None:
    with listening(limits=QUICK) as made, closing(made.connect()) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
        assert drip(connection, b"a").startswith(b"HTTP/1.1 408 ")


def test_a_second_head_on_the_same_connection_is_given_up_too() -> None:
    with listening(limits=QUICK) as made, closing(made.connect()) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"GET /healthz HTTP/1.1\r\nX-Long: ")
        assert b"HTTP/1.1 408 " in drip(connection, b"a")


def test_a_client_that_says_nothing_is_given_up() -> None:
    with listening(limits=QUICK) as made, closing(made.connect()) as connection:
        assert answer_on(connection) == (0, b"")


@pytest.mark.parametrize("length", ["Content-Length: 9000", "Transfer-Encoding: chunked"])
def test_a_body_that_comes_byte_by_byte_is_given_up(length: str) -> None:
    head = "POST /tenants/acknowledge HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nX-Gforce: 1\r\n"
    with listening(limits=QUICK) as made, closing(made.connect()) as connection:
        connection.sendall(f"{head}{length}\r\n\r\n".encode())
        said = drip(connection, b"1\r\n \r\n" if "chunked" in length else b" ")
        assert said.startswith(b"HTTP/1.1 408 ")
        until(lambda: made.busy == 0)


def test_a_body_that_nobody_asked_for_and_that_never_ends_is_given_up() -> None:
    with listening(limits=QUICK) as made, closing(made.connect()) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000\r\n\r\n")
        assert drip(connection, b" ").startswith(b"HTTP/1.1 200 ")


def test_a_client_that_does_not_read_its_answers_is_given_up() -> None:
    with listening(limits=QUICK) as made, closing(made.connect(small=True)) as connection:
        connection.settimeout(0.1)
        with suppress(OSError):
            for _ in range(1_000):
                connection.sendall(b"GET /assets/uPlot.js HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: made.answered > 0)
        until(lambda: made.held == made.busy == 0)
        assert made.answered < 1_000


@pytest.mark.parametrize("filler", ["X-Long: " + "a" * 20_000, "\r\n".join(f"X-{n}: a" for n in range(4_000))])
def test_a_head_that_is_too_large_is_refused(port: Port, filler: str) -> None:
    assert port.ask("/healthz", filler)[0] in (400, 431)
    with closing(port.connect()) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        with suppress(OSError):
            for begin in range(0, len(filler), 1_000):
                connection.sendall(filler[begin : begin + 1_000].encode())
            connection.sendall(b"\r\nConnection: close\r\n\r\n")
        assert answer_on(connection)[0] in (400, 431)


def test_a_body_that_is_too_large_is_refused_whether_or_not_its_length_is_told(port: Port) -> None:
    head = b"POST /tenants/acknowledge HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nX-Gforce: 1\r\n"
    for tail in (
        b"Content-Length: 20000\r\nConnection: close\r\n\r\n" + b" " * 20_000,
        b"Content-Length: 99999999999999999999\r\nConnection: close\r\n\r\n",
        b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + b"400\r\n" + b" " * 1_024 + b"\r\n" * 20,
        b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + (b"400\r\n" + b" " * 1_024 + b"\r\n") * 20,
    ):
        assert port.send(head + tail)[0] in (400, 413)


def test_a_body_without_end_is_cut_off(port: Port) -> None:
    with closing(port.connect()) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Gforce: 1\r\nTransfer-Encoding: chunked\r\n\r\n")
        with pytest.raises(ConnectionError):
            connection.sendall((b"10000\r\n" + b" " * 65_536 + b"\r\n") * 1_000)


def test_it_stops_though_slow_clients_are_connected() -> None:
    with ExitStack() as stack:
        with listening() as made:
            slow = [stack.enter_context(closing(made.connect())) for _ in range(20)]
            for one in slow:
                one.sendall(b"GET / HTTP/1.1\r\nHost: loc")
        assert not made.server._thread.is_alive()


# Sharing


@pytest.mark.parametrize("path", ["/metrics", "/status", "/api/overview"])
def test_those_who_ask_at_once_share_one_rendering(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    going, made = threading.Event(), []

    def rendered(*_: object) -> Any:
        made.append(path)
        going.wait(PATIENCE)
        return b"rendered" if path == "/metrics" else []

    monkeypatch.setattr(http, "generate_latest", rendered)
    monkeypatch.setattr(HttpServer, "figures", rendered)
    with listening() as asked, ThreadPoolExecutor(16) as clients:
        answers = [clients.submit(asked.ask, path) for _ in range(16)]
        try:
            until(lambda: asked.busy == 16)
        finally:
            going.set()
        found = [answer.result() for answer in answers]
    assert len(made) == 1
    assert {status for status, _ in found} == {200}
    assert len({content.partition(b"\r\n\r\n")[2] for _, content in found}) == 1


def in_a_loop_of_its_own(asked: Coroutine[Any, Any, None]) -> None:
    """Runs it in another thread: Playwright's loop runs on in this one after the tests of the browser."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, asked).result()


def test_an_answer_is_kept_for_nine_times_as_long_as_it_took_up_to_a_limit() -> None:
    now, costs, made = [100.0], [0.01], []

    def make() -> int:
        now[0] += costs[0]
        made.append(now[0])
        return len(made)

    async def ask() -> None:
        shared = Shared(make, lambda: now[0])
        for cost, kept in ((0.01, 0.09), (0.001, 0.009), (5.0, KEPT_AT_MOST)):
            costs[0] = cost
            number = await shared.get()
            now[0] += kept * 0.9
            assert await shared.get() == number
            now[0] += kept * 0.2
            assert await shared.get() == number + 1
            now[0] += 2 * KEPT_AT_MOST

    in_a_loop_of_its_own(ask())


def test_a_rendering_that_failed_is_told_to_all_who_waited_and_tried_again_by_the_next() -> None:
    failing, calls = [True], []

    def make() -> str:
        calls.append(1)
        if failing[0]:
            raise RuntimeError("no figures")
        return "figures"

    async def ask() -> None:
        shared = Shared(make)
        found = await asyncio.gather(*(shared.get() for _ in range(5)), return_exceptions=True)
        assert [str(one) for one in found] == ["no figures"] * 5
        assert len(calls) == 1
        failing[0] = False
        assert await shared.get() == "figures"

    in_a_loop_of_its_own(ask())


# Whatever is malformed


@pytest.mark.parametrize("digits", [10, 11, 19, 400, 3_900, 5_000, 20_000])
def test_a_partition_that_cannot_be_is_not_found(port: Port, digits: int) -> None:
    assert port.ask(f"/partitions/{'9' * digits}/resume", "X-Gforce: 1", method="POST")[0] in (404, 414, 431, 400)
    assert port.resumed == []


@pytest.mark.parametrize("number", ["-1", "+1", "1e3", "0x1", "%D9%A3", "%C2%B2", "1%00", "%20", "1_0", "%", "%zz"])
def test_a_partition_that_is_no_number_is_not_found(port: Port, number: str) -> None:
    assert port.ask(f"/partitions/{number}/resume", "X-Gforce: 1", method="POST")[0] == 404
    assert port.resumed == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"\xff\xfe",
        b'{"tenant": "\xff", "number": 1}',
        b'{"tenant": "\\ud800", "number": 1}',
        b'{"tenant": "bank", "number": 1',
        b'{"tenant": "bank", "number": 1} 2',
        b'{"tenant": "bank", "number": 1e400}',
        b'{"tenant": "bank", "number": -1}',
        b'{"tenant": "bank", "number": ' + b"9" * 5_000 + b"}",
        b'{"tenant": ' + b"[" * 9_000,
        b'{"more": ' + b"[" * 9_000,
        b"[" * 9_000,
    ],
)
def test_a_body_that_is_no_acknowledgement_is_a_bad_request(port: Port, body: bytes) -> None:
    head = "POST /tenants/acknowledge HTTP/1.1\r\nHost: localhost\r\nX-Gforce: 1\r\nConnection: close\r\n"
    sent = f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    assert port.send(sent)[0] == 400
    assert port.acknowledged == []


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS client\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET http://localhost/healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET //evil.example/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost : localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"9" * 400 + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"POST /tenants/acknowledge HTTP/1.1\r\nHost: localhost\r\nX-Gforce: 1\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /api/tenant HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /api/tenant?name=%ff%00 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /api/history?name=a&since=-1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /api/history?name=a&since=" + b"9" * 5_000 + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /assets/%00 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /assets/..%2f..%2fcli.py HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /partitions/0/resume HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"OPTIONS /partitions/0/resume HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"DELETE /metrics HTTP/1.1\r\nHost: localhost\r\nX-Gforce: 1\r\nConnection: close\r\n\r\n",
    ],
)
def test_what_is_malformed_is_answered_with_a_4xx(port: Port, sent: bytes) -> None:
    assert 400 <= port.send(sent)[0] < 500
    assert (port.resumed, port.acknowledged) == ([], [])


def test_a_bad_chunk_after_a_request_that_needs_no_body_leaves_no_traceback(port: Port) -> None:
    sent = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
    assert port.send(sent)[0] == 400
    until(lambda: port.busy == 0)
    assert port.complaints == []


def test_a_client_that_leaves_in_the_middle_of_its_body_leaves_no_traceback(port: Port) -> None:
    with closing(port.connect()) as connection:
        connection.sendall(
            b"POST /tenants/acknowledge HTTP/1.1\r\nHost: localhost\r\nX-Gforce: 1\r\n"
            b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        )
        until(lambda: port.busy == 1)
    until(lambda: port.busy == 0)
    assert port.complaints == []


_PATHS = st.sampled_from(["/", "/healthz", "/partitions/", "/tenants/acknowledge", "/api/", "/assets/", "/status"])
_TEXT = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=30)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    method=st.sampled_from(["GET", "HEAD", "POST", "PUT", "PATCH", "OPTIONS", "TRACE", "get", "X"]),
    path=st.builds("{}{}{}".format, _PATHS, _TEXT, st.sampled_from(["", "/resume", "?name=", "?since=%", "#"])),
    name=st.sampled_from(["Origin", "Content-Type", "If-None-Match", "Authorization", "Expect", "Upgrade", "Cookie"]),
    value=st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=30),
    body=st.binary(max_size=50),
    length=st.one_of(st.none(), st.integers(-1, 60), _TEXT),
)
def test_nothing_that_is_sent_is_a_mistake_of_ours(
    port: Port, method: str, path: str, name: str, value: str, body: bytes, length: object
) -> None:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "X-Gforce: 1", "Connection: close", f"{name}: {value}"]
    told = len(body) if length is None else length
    sent = "\r\n".join([*lines, f"Content-Length: {told}", "", ""]).encode("latin-1") + body
    with closing(port.connect()) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        status, content = answer_on(connection)
    assert status < 500, content
    assert port.complaints == []
    port.resumed.clear()
