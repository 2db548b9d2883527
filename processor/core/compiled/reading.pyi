from collections.abc import Callable

from processor.core.advice import Advice, Panel, Piece
from processor.core.stream.batch import Raw, Read
from processor.core.stream.events import FeedbackEvent, Limits, RequestEvent
from processor.core.stream.remembering import Memory

class Reader:
    def __init__(self, limits: Limits, latest: int, head_of: Callable[[bytes, str], bytes | None]) -> None: ...
    def requests(
        self, raws: list[Raw], event: type[RequestEvent], memory: Memory
    ) -> tuple[list[Read[RequestEvent] | None], list[Raw]]: ...
    def feedback(
        self, raws: list[Raw], event: type[FeedbackEvent]
    ) -> tuple[list[Read[FeedbackEvent] | None], list[Raw]]: ...

def put_together(
    predictions: bytes,
    panel: Panel,
    others: list[tuple[bytes, dict[bytes, Piece]]],
    first: dict[bytes, Piece],
    advice: type[Advice],
) -> Advice | None: ...
