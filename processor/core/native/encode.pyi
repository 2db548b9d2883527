from collections.abc import Callable, Iterable, Sequence

from processor.core.advice import Advice
from processor.core.events import RequestEvent
from processor.core.exact import Ints, Parts
from processor.core.stream.decode import Decoded, EncodedDecision, InputRecord
from processor.core.stream.encode import Choice

def columns(
    cases: list[Decoded[RequestEvent]],
) -> tuple[list[InputRecord], list[bytes], list[str], list[Advice], list[bytes]]: ...
def decisions_in_order(
    requests: Iterable[Decoded[RequestEvent]], values: dict[int, bytes], decision: type[EncodedDecision]
) -> list[EncodedDecision]: ...
def joined_ids(ids: list[bytes]) -> bytes: ...
def packed_entries(entries: dict[bytes, bytes | None]) -> bytes: ...
def written_decisions(
    writers: Sequence[tuple[list[bytes], dict[Choice, bytes], int, int]],
    ids: list[str],
    choices_made: Sequence[Ints],
    fractions: bytes,
    parts: Parts,
    ends: list[bytes],
    contexts: list[bytes],
    encode: Callable[[str], bytes],
) -> list[bytes]: ...
