from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from processor.core.advice import Panel
from processor.core.stream.batch import Raw, Read
from processor.core.stream.events import FeedbackEvent, RequestEvent
from processor.core.stream.joining import Joined

def match(
    labels: Iterable[Read[FeedbackEvent]],
    changed: dict[bytes, bytes | None],
    before: Mapping[bytes, bytes | None],
    clock: int,
    joined: dict[str, Joined],
    plainly: Callable[[Raw, FeedbackEvent, bytes, bytes, dict[str, Joined]], Any],
) -> list[Read[FeedbackEvent]]: ...
def first_look(
    chunk: Sequence[Read[RequestEvent]], changed: dict[bytes, bytes | None], before: Mapping[bytes, bytes | None]
) -> tuple[bool, set[Panel], set[frozenset[str]]]: ...
def ids(requests: list[Read[RequestEvent]], feedback: list[Read[FeedbackEvent]]) -> list[bytes]: ...
def by_tenant(requests: Iterable[Read[RequestEvent]]) -> dict[str, list[Read[RequestEvent]]]: ...
