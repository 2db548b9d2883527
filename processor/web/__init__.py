"""The status page at ``/``: static files, and the figures it draws as JSON. It only reads."""

from .routes import HEADERS, routes
from .view import View

__all__ = ["HEADERS", "View", "routes"]
