"""G-FORCE: fair decisions on a live event stream."""

__version__ = "0.1.0"
