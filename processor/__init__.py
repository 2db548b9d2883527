"""G-FORCE: fair decisions on a live event stream."""

__version__ = "0.2.0"
