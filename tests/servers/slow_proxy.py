"""A server that is slow to answer: a proxy on loopback that holds every reply back for a while."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from types import TracebackType

LOOPBACK = "127.0.0.1"


class SlowProxy:
    """Hands on what clients send at once, and what the server answers ``delay`` seconds later, in order.

    ``delay`` may be changed while it runs; it holds for what the server sends from then on.
    """

    def __init__(self, port: int, delay: float = 0.0) -> None:
        self.delay, self.port = delay, 0
        self._server_port = port
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="slow proxy", daemon=True)

    def start(self) -> SlowProxy:
        self._thread.start()
        listening = asyncio.start_server(self._serve, LOOPBACK, 0)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(10)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end_all(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def __enter__(self) -> SlowProxy:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """For a Redis client."""
        return f"redis://{LOOPBACK}:{self.port}"

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_connection(LOOPBACK, self._server_port)
        held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        pumps = [
            asyncio.create_task(self._hand_on(client, to_server)),
            asyncio.create_task(self._hold(server, held)),
            asyncio.create_task(self._let_go(held, to_client)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            for writer in (to_client, to_server):
                writer.close()

    async def _hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()

    async def _hold(self, reader: asyncio.StreamReader, held: asyncio.Queue[tuple[float, bytes]]) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                held.put_nowait((self._loop.time() + self.delay, data))

    async def _let_go(self, held: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                due, data = await held.get()
                await asyncio.sleep(max(due - self._loop.time(), 0.0))
                writer.write(data)
                await writer.drain()

    async def _end_all(self) -> None:
        if self._server is not None:
            self._server.close()
        others = [task for task in asyncio.all_tasks(self._loop) if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
