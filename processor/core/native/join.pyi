from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from processor.core.advice import Panel
from processor.core.events import FeedbackEvent, RequestEvent
from processor.core.stream.decode import Decoded, InputRecord
from processor.core.stream.join import Joined

def match(
    labels: Iterable[Decoded[FeedbackEvent]],
    changed: dict[bytes, bytes | None],
    before: Mapping[bytes, bytes | None],
    clock: int,
    joined: dict[str, Joined],
    plainly: Callable[[InputRecord, FeedbackEvent, bytes, bytes, dict[str, Joined]], Any],
) -> list[Decoded[FeedbackEvent]]: ...
def first_look(
    chunk: Sequence[Decoded[RequestEvent]], changed: dict[bytes, bytes | None], before: Mapping[bytes, bytes | None]
) -> tuple[bool, set[Panel], set[frozenset[str]]]: ...
def ids(requests: list[Decoded[RequestEvent]], feedback: list[Decoded[FeedbackEvent]]) -> list[bytes]: ...
def by_tenant(requests: Iterable[Decoded[RequestEvent]]) -> dict[str, list[Decoded[RequestEvent]]]: ...
