"""A schema registry on loopback, as much of it as confluent-kafka's client needs for schemas without references."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

Answer = tuple[int, dict[str, Any]]


class SchemaRegistry:
    """``/schemas/ids/{id}`` and ``/subjects/{subject}/versions``. ``asked`` lists every request it got."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.authorization: list[str | None] = []
        self.broken: Answer | None = None
        """if set, the answer to everything"""
        self._schemas: list[str] = []
        self._subjects: dict[str, list[int]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def __enter__(self) -> SchemaRegistry:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def register(self, subject: str, schema: str) -> int:
        if schema not in self._schemas:
            self._schemas.append(schema)
        number = self._schemas.index(schema) + 1
        versions = self._subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def subjects(self) -> set[str]:
        return set(self._subjects)

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        self.asked.append(f"{method} {path}")
        if self.broken is not None:
            return self.broken
        if found := re.fullmatch(r"/schemas/ids/(\d+)", path):
            return self._by_id(int(found[1]))
        if found := re.fullmatch(r"/subjects/([^/]+)/versions(/latest)?", path):
            subject = unquote(found[1])
            if method == "POST":
                return 200, {"id": self.register(subject, json.loads(body)["schema"])}
            return self._latest(subject)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _by_id(self, number: int) -> Answer:
        if not 1 <= number <= len(self._schemas):
            return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
        return 200, {"schema": self._schemas[number - 1]}

    def _latest(self, subject: str) -> Answer:
        versions = self._subjects.get(subject)
        if not versions:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        number = versions[-1]
        return 200, {
            "subject": subject,
            "version": len(versions),
            "id": number,
            "schema": self._schemas[number - 1],
        }

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._reply("GET", b"")

            def do_POST(self) -> None:
                self._reply("POST", self.rfile.read(int(self.headers["Content-Length"])))

            def _reply(self, method: str, body: bytes) -> None:
                registry.authorization.append(self.headers.get("Authorization"))
                status, content = registry.answer(method, urlsplit(self.path).path, body)
                data = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler
