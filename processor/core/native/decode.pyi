from collections.abc import Callable

from processor.core.advice import Advice, AdvicePiece, Panel
from processor.core.events import FeedbackEvent, Limits, RequestEvent
from processor.core.stream.decode import Decoded, InputRecord
from processor.core.stream.remembering import Memory

class Reader:
    def __init__(self, limits: Limits, latest: int, head_of: Callable[[bytes, str], bytes | None]) -> None: ...
    def requests(
        self, raws: list[InputRecord], event: type[RequestEvent], memory: Memory
    ) -> tuple[list[Decoded[RequestEvent] | None], list[InputRecord]]: ...
    def feedback(
        self, raws: list[InputRecord], event: type[FeedbackEvent]
    ) -> tuple[list[Decoded[FeedbackEvent] | None], list[InputRecord]]: ...

def put_together(
    predictions: bytes,
    panel: Panel,
    others: list[tuple[bytes, dict[bytes, AdvicePiece]]],
    first: dict[bytes, AdvicePiece],
    advice: type[Advice],
) -> Advice | None: ...
