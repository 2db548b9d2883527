"""The hashes of the journal, made together."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from processor.core.journal import hashes_text, record_hash
from processor.core.step import Raw
from processor.runtime.hashing import LEAST, MOST, hashes_of

TIMES = st.integers(-1, MOST - 1) | st.sampled_from([-1, 0, LEAST - 1, LEAST, LEAST + 1, 1_700_000_000_000, MOST - 1])
BYTES = st.none() | st.binary(max_size=300)
RAWS = st.builds(Raw, st.just("requests"), st.just(0), TIMES, BYTES, BYTES, st.just(()), BYTES)


@given(st.lists(RAWS, max_size=20), st.booleans())
@example([], False)
def test_hashes_made_together_are_those_made_one_by_one(raws: list[Raw], twice: bool) -> None:
    raws = raws * 2 if twice else raws
    one_by_one = [record_hash(raw.key, raw.received, raw.timestamp) for raw in raws]
    assert hashes_of(raws) == hashes_text(one_by_one)
