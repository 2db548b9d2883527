"""What was drawn according to the record, for replays that do not know the seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from processor.core.events import DecisionEvent, RequestEvent, decode_decision
from processor.core.learner.cases import Drawn
from processor.core.stream.step import DecodedBatch
from processor.core.stream.tenant import TenantSettings
from processor.ports.log import Record

from .rules import RuleBook


def without_seed(asked: DecodedBatch, book: RuleBook) -> set[str]:
    """The tenants of these requests whose seed nobody gave us."""
    if len(book.assigned) <= len(asked.requests) and book.has_all_seeds():
        return set()  # without a look at each request
    asking = {event.tenant for _, event, _ in asked.requests}
    return {tenant for tenant in asking if book.settings_for(tenant) and tenant in book.seedless}


def drawn_by_record(
    asked: DecodedBatch, book: RuleBook, tenants: set[str], decisions: Iterable[Record]
) -> Mapping[str, Mapping[str, Drawn]]:
    """What these decisions say, by tenant and id; only what some draw could have led to."""
    said = {(e.tenant, e.decision_id): e for _, e, _ in asked.requests if e.tenant in tenants}
    drawn: dict[str, dict[str, Drawn]] = {tenant: {} for tenant in tenants}
    for record in decisions:
        try:
            event = decode_decision(record.value or b"")
        except msgspec.MsgspecError:
            continue
        request, rules = said.get((event.tenant, event.decision_id)), book.settings_for(event.tenant)
        if request is not None and rules is not None and _possible(event, request, rules):
            drawn[event.tenant][event.decision_id] = Drawn(event.decision, event.expert, event.instance)
    return drawn


def _possible(event: DecisionEvent, request: RequestEvent, rules: TenantSettings) -> bool:
    """Whether the decision is an expert's advice, or the positive label by exploration."""
    settings = rules.settings
    followed = event.expert is not None and request.predictions.get(event.expert) == event.decision
    explored = event.expert is None and settings.explore is not None and event.decision == settings.positive
    return event.decision in settings.labels and (followed or explored) and event.instance in (None, *settings.labels)
