"""The files of the page: ours from this package, the charts' from the package that ships them."""

from __future__ import annotations

from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path

import msgspec

from processor.core.errors import GForceError

PAGE = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

# uPlot has no package of its own on PyPI. This one holds its files, 44 kB, and asks for nothing else.
CHARTS = "metaflow-card-uplot"
CHART_FOLDER = "metaflow_extensions/card_uplot/plugins/cards/uplot/uplot"
CHART_FILES = {"uPlot.js": "uPlot.iife.min.js", "uPlot.css": "uPlot.min.css"}


class File(msgspec.Struct, frozen=True):
    content: bytes
    media_type: str
    etag: str


def page_files() -> dict[str, File]:
    """Every file by the name it is served under."""
    own = {
        entry.name: entry.read_bytes()
        for entry in files("processor.web").joinpath("assets").iterdir()
        if Path(entry.name).suffix in TYPES
    }
    return {name: _file(name, content) for name, content in {**own, **_chart_files()}.items()}


def _chart_files() -> dict[str, bytes]:
    try:
        package = distribution(CHARTS)
        return {
            name: Path(str(package.locate_file(f"{CHART_FOLDER}/{source}"))).read_bytes()
            for name, source in CHART_FILES.items()
        }
    except (PackageNotFoundError, FileNotFoundError):
        raise GForceError(f"the status page needs the charts of {CHARTS}: pip install {CHARTS}==1.0.0") from None


def _file(name: str, content: bytes) -> File:
    return File(content, TYPES[Path(name).suffix], f'"{blake2b(content, digest_size=12).hexdigest()}"')
