"""A TCP forwarder on loopback that can answer late, hold everything back, and move to another server."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any

from .redis_server import LOOPBACK

CHUNK = 1 << 16
"""bytes read at once"""


class TcpProxy:
    """Forwards connections to ``target``, a port of loopback. All of it runs in a thread of its own.

    ``delay`` is how long every answer is kept back, in seconds. ``move`` concerns new connections only: those that are
    open stay with the server they were made to, as with a load balancer, unless they are cut.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.delay = 0.0
        self.accepted = 0
        self.port = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._gate = asyncio.Event()
        self._gate.set()
        self._thread = threading.Thread(target=self._serve, name="tcp-proxy", daemon=True)
        self._listening = threading.Event()

    @property
    def url(self) -> str:
        return f"redis://{LOOPBACK}:{self.port}"

    def start(self) -> TcpProxy:
        self._thread.start()
        if not self._listening.wait(10):
            raise RuntimeError("the proxy did not begin to listen within 10 s")
        return self

    def move(self, target: int) -> None:
        """New connections go to another port."""
        self.target = target

    def hold(self) -> None:
        """Forward nothing in either direction until ``release``; connections are still accepted."""
        self._loop.call_soon_threadsafe(self._gate.clear)

    def release(self) -> None:
        self._loop.call_soon_threadsafe(self._gate.set)

    def cut(self) -> None:
        """Close every connection that is open."""
        self._loop.call_soon_threadsafe(self._close_all)

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)

    def __enter__(self) -> TcpProxy:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._accept, LOOPBACK, 0))
        self.port = int(server.sockets[0].getsockname()[1])
        self._listening.set()
        self._loop.run_forever()
        server.close()
        self._close_all()
        waiting = asyncio.all_tasks(self._loop)
        for task in waiting:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*waiting, return_exceptions=True))
        self._loop.close()

    def _close_all(self) -> None:
        for writer in list(self._open):
            writer.close()

    async def _accept(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            from_server, to_server = await asyncio.open_connection(LOOPBACK, self.target)
        except OSError:
            to_client.close()
            return
        both = {to_client, to_server}
        self._open |= both
        ways: list[Coroutine[Any, Any, None]] = [
            self._pump(from_client, to_server, answers=False),
            self._pump(from_server, to_client, answers=True),
        ]
        tasks = [asyncio.ensure_future(way) for way in ways]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            for writer in both:
                writer.close()
            self._open -= both

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool) -> None:
        """Each chunk is sent ``delay`` after it came, in order: an answer in many chunks is late once."""
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        sender = asyncio.ensure_future(self._send(waiting, sink))
        with contextlib.suppress(OSError):
            while data := await source.read(CHUNK):
                late = self.delay if answers else 0.0
                waiting.put_nowait((self._loop.time() + late, data))
        waiting.put_nowait((self._loop.time(), b""))
        await sender

    async def _send(self, waiting: asyncio.Queue[tuple[float, bytes]], sink: asyncio.StreamWriter) -> None:
        while True:
            due, data = await waiting.get()
            if not data:
                return
            await asyncio.sleep(max(due - self._loop.time(), 0.0))
            await self._gate.wait()
            try:
                sink.write(data)
                await sink.drain()
            except OSError:
                return
