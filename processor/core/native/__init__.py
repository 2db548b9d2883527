"""The inner loops of the core, compiled: a few functions that do most of the work of a batch.

Each gives the same as its plain version, which stands in the module that calls it and takes its place where these are
not built (they need a C compiler when the package is installed). They import nothing of the core.
"""

try:
    from .hashes import contents, digests, hashes_as_received, record_hashes
    from .join import by_tenant, first_look, ids, match
    from .decode import Reader, put_together
    from .solver import active_set
    from .monitor import observe
    from .encode import columns, decisions_in_order, joined_ids, packed_entries, written_decisions
except ModuleNotFoundError:
    BUILT = False
else:
    BUILT = True

REMEDY = (
    "The inner loops are not compiled, and the processor is about a third slower than it could be. "
    "Install a C compiler and Python's headers (Debian: gcc python3-dev), then install the package again."
)

__all__ = [
    "BUILT",
    "REMEDY",
    "Reader",
    "active_set",
    "by_tenant",
    "columns",
    "contents",
    "decisions_in_order",
    "digests",
    "first_look",
    "hashes_as_received",
    "ids",
    "joined_ids",
    "match",
    "observe",
    "packed_entries",
    "put_together",
    "record_hashes",
    "written_decisions",
]
