"""The hashes of the journal, made together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from processor.core import native
from processor.core.stream.journal import record_hash

from .tiers import tier as tier

LEAST, MOST = 1 << 32, 1 << 63
TIMES = st.integers(-1, MOST - 1) | st.sampled_from([-1, 0, LEAST - 1, LEAST, LEAST + 1, 1_700_000_000_000, MOST - 1])
BYTES = st.none() | st.binary(max_size=300)
RECORDS = st.tuples(BYTES, BYTES, TIMES)
Record = tuple[bytes | None, bytes | None, int]


@given(st.lists(RECORDS, min_size=1, max_size=20), st.booleans())
def test_hashes_made_together_are_those_made_one_by_one(records: list[Record], twice: bool) -> None:
    records = records * 2 if twice else records
    together = native.record_hashes(*map(list, zip(*records, strict=True)))
    assert together == b"".join(record_hash(*record) for record in records)
