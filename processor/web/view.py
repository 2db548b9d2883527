"""What the page asks the processor for. All of it is called from threads of the HTTP server."""

from __future__ import annotations

from typing import Protocol

from starlette.requests import Request

from processor.telemetry.figures import History, TenantFigures
from processor.telemetry.status import Status


class View(Protocol):
    def status(self) -> Status:
        """The process and its partitions."""

    def figures(self) -> list[TenantFigures]:
        """Of every tenant that is listed."""

    def tenant(self, name: str) -> TenantFigures | None:
        """None if this process does not have the tenant."""

    def history(self, name: str) -> History | None:
        """None if nothing has been sampled of it."""

    def token_ok(self, request: Request) -> bool:
        """Whether the request may see figures."""
