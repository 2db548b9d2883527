"""Connections that are bounded in number and in time. uvicorn bounds neither until a request is complete.

Its ``limit_concurrency`` counts connections only when a request's head has come, and its ``timeout_keep_alive`` begins
after the first answer and ends with the next byte: a client that sends a byte now and then stays for ever.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from .guard import PROBES, problem

RESERVED = 8
"""Connections beyond the limit, on which probes are answered."""
MAX_BUFFERED_BYTES = 2_000_000
"""Bytes of one request. What is too large is refused, and still read up to here, for the client to see the answer."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    connections: int = 100
    request_seconds: float = 10.0
    """for the head of a request, and then for its body"""
    answer_seconds: float = 30.0
    """for an answer to be made and taken"""


class Phase(Enum):
    HEAD = "head"
    """the head of a request is awaited"""
    BODY = "body"
    ANSWER = "answer"


class BoundedConnection(H11Protocol):
    """One connection, which must go on to its next phase in time."""

    limits: ClassVar[ConnectionLimits] = ConnectionLimits()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._received = 0
        self._routes, self.app = self.app, self._admitted
        self._timer: asyncio.TimerHandle | None = None
        self._enter(Phase.HEAD)
        if len(self.connections) > self.limits.connections + RESERVED:
            self._find_room()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if self._received > MAX_BUFFERED_BYTES:
            self.transport.abort()
            return
        super().data_received(data)
        phase = self._current()
        if phase is not self.phase:
            self._enter(phase)

    def on_response_complete(self) -> None:
        self._received = 0
        super().on_response_complete()
        self._enter(self._current())

    def send_400_response(self, msg: str) -> None:
        """uvicorn does not expect that an answer has begun, nor that a route is about to give one."""
        if self._unanswered():
            super().send_400_response(msg)
        else:
            self.transport.abort()
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _unanswered(self) -> bool:
        return self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE)

    def _current(self) -> Phase:
        if self.transport.get_write_buffer_size():
            return Phase.ANSWER
        state = self.conn.their_state
        return Phase.HEAD if state is h11.IDLE else Phase.BODY if state is h11.SEND_BODY else Phase.ANSWER

    def _enter(self, phase: Phase) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.phase, self.since = phase, self.loop.time()
        seconds = self.limits.answer_seconds if phase is Phase.ANSWER else self.limits.request_seconds
        self._timer = self.loop.call_later(seconds, self._overdue)

    def _overdue(self) -> None:
        phase = self._current()
        if phase is not self.phase:
            self._enter(phase)  # the client has taken the answer in the meantime
        elif phase is Phase.HEAD and not self.conn.trailing_data[0]:
            self.transport.close()
        elif phase is Phase.ANSWER or self.transport.is_closing() or not self._unanswered():
            self.transport.abort()
        else:
            self._say(408, f"the request was not complete within {self.limits.request_seconds:g} seconds")

    def _find_room(self) -> None:
        """The one that has waited longest for a head gives way: most likely it is idle or slow on purpose."""
        others = [one for one in self.connections if isinstance(one, BoundedConnection) and one is not self]
        waiting = [one for one in others if one.phase is Phase.HEAD]
        if waiting:
            oldest = min(waiting, key=lambda one: one.since)
            self.connections.discard(oldest)  # asyncio closes it in its next turn, when many more may have come
            oldest.give_way()
        else:
            self.give_way()

    def give_way(self) -> None:
        if self.cycle is None:
            self._say(503, self._full())
        else:  # whoever has had an answer would take this one for the answer to its next request
            self.transport.close()

    async def _admitted(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The last few connections are for probes: an overloaded processor can still say that it lives."""
        app: ASGIApp = self._routes
        if len(self.connections) > self.limits.connections and scope["path"] not in PROBES:
            others = (one for one in self.connections if isinstance(one, BoundedConnection))
            if sum(one.phase is not Phase.HEAD for one in others) > self.limits.connections:
                app = problem(503, self._full(), {"Retry-After": "1"})
        await app(scope, receive, send)

    def _full(self) -> str:
        limit = self.limits.connections
        return f"this processor has {limit} connections already: try again, or raise http.max_connections"

    def _say(self, status: int, what: str) -> None:
        """To a client whose request has not reached a route."""
        answer = problem(status, what, {"connection": "close"})
        lines = [f"HTTP/1.1 {status} ".encode(), *(b"%s: %s" % pair for pair in answer.raw_headers), b"", b""]
        self.transport.write(b"\r\n".join(lines) + bytes(answer.body))
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()


def bounded(limits: ConnectionLimits) -> type[BoundedConnection]:
    """What uvicorn makes for each connection."""
    return type("BoundedConnection", (BoundedConnection,), {"limits": limits})
