"""From what a person asks to an answer for every tenant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

import msgspec

from processor.audit.replay.findings import NotAuditableError
from processor.audit.replay.rules import Secrets
from processor.audit.sources.source import Source
from processor.core.errors import IncompatibleStateError, InvalidInputError
from processor.core.stream.journal import JournalRecord
from processor.core.stream.partitioner import partition_of
from processor.ports.codec import Codec

from .figures import tenant_answers
from .settings import SettingsChange, Sweep, settings_asked_for
from .tables import WhatIf
from .whatif import all_answered, tasks_for

FIRST_REQUESTS = 50_000
"""Of each partition, in which experts are looked for that are to be left out."""


class AskedExperts(msgspec.Struct, gc=False):
    """The part of a request that says who was asked."""

    tenant: str
    predictions: dict[str, object]


def asked(
    source: Source,
    secrets: Secrets,
    base: SettingsChange,
    sweeps: Sequence[Sweep],
    tenants: Sequence[str] = (),
    codec: Callable[[], Codec | None] | None = None,
    processes: int | None = None,
    progress: Callable[[int], None] = lambda records: None,
) -> WhatIf:
    """Try every setting on every tenant, or on those named. Raises NotAuditable where the record does not allow it."""
    for role in ("journal", "requests", "feedback"):
        if not source.has(role):
            raise NotAuditableError(f"there are no {role} in this record: without them nothing can be recomputed")
    wanted = frozenset(tenants)
    numbers = partitions_of(source, wanted)
    leaving_out = base.without or any(sweep.what == "without" for sweep in sweeps)
    experts = experts_in(source, numbers, wanted, codec() if codec else None) if leaving_out else []
    changes = settings_asked_for(base, sweeps, experts)
    tasks = tasks_for(source, numbers, secrets, changes, wanted, codec, processes)
    done = all_answered(tasks, processes, progress)
    runs = {(run.tenant, run.change): run for one in done for run in one.runs}
    answers = tenant_answers(list(runs.values()), changes)
    if missing := sorted(wanted - {answer.tenant for answer in answers}):
        raise InvalidInputError(f'there is no decision of tenant "{missing[0]}" in this record')
    return WhatIf.of(done, answers, bool(wanted))


def partitions_of(source: Source, tenants: frozenset[str] = frozenset()) -> list[int]:
    """Those with a journal, and with one of the tenants, where some are named."""
    found = []
    for number in source.partitions("journal"):
        first = next(iter(source.read("journal", number)), None)
        if first is None:
            continue
        if not tenants or _may_hold(first.value or b"", number, tenants):
            found.append(number)
    return found


def _may_hold(journal: bytes, number: int, tenants: frozenset[str]) -> bool:
    """Whether one of the tenants is of this partition; a journal that cannot be read is looked into all the same."""
    try:
        count = JournalRecord.decode(journal).partitions
    except IncompatibleStateError:
        return True
    return any(partition_of(tenant.encode(), count) == number for tenant in tenants)


def experts_in(source: Source, numbers: Sequence[int], tenants: frozenset[str], codec: Codec | None) -> list[str]:
    """The experts of the first requests of each partition."""
    from processor.ports.codec import raw_of

    decoder = msgspec.json.Decoder(AskedExperts)
    found: set[str] = set()
    for number in numbers:
        for record in islice(source.read("requests", number), FIRST_REQUESTS):
            try:
                advice = decoder.decode(raw_of("requests", record, codec).value or b"")
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
            if not tenants or advice.tenant in tenants:
                found |= advice.predictions.keys()
    return sorted(found)
