"""How much of a record was verified: of its draws and of its end, and why no more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from processor.audit.replay.findings import Kind

from .result import PartitionAudit

Share = Literal["verified", "not verified", "in part"]
BREAKS: tuple[Kind, ...] = ("journal-altered", "journal-gap", "journal-unreadable")
NAMED = 5
"""partitions that are named before the rest is counted"""


def draws_verified(done: Sequence[PartitionAudit]) -> tuple[Share, str]:
    """Whether every draw was recomputed, and why that can be said."""
    judged = [one for one in done if one.batches or _expected(one)]
    whole = [not one.seedless and _recomputed_in_full(one) for one in judged]
    if judged and all(whole):
        return "verified", "with the seeds: every draw was recomputed"
    if judged and all(one.seedless and _recomputed_in_full(one) for one in judged):
        return "not verified", "without the seeds: the draws were taken from the record, all else was recomputed"
    some = any(not one.seedless and one.recomputed for one in judged)
    return "in part" if some else "not verified", "; ".join(_why_not_drawn(judged)) or "there is no batch"


def _why_not_drawn(judged: Sequence[PartitionAudit]) -> Iterator[str]:
    if any(one.seedless for one in judged):
        yield "some tenants' seeds are not known: their draws were taken from the record"
    batches, left = sum(one.batches for one in judged), sum(one.batches - one.recomputed for one in judged)
    if left:
        yield f"{left} of {batches} batches were not recomputed"
    if unread := [one for one in judged if not one.finished]:
        yield f"{_partitions(unread)} could not be read to the end"
    if empty := [one for one in judged if one.finished and not one.batches]:
        yield f"the journal of {_partitions(empty)} is empty although something was committed"


def end_verified(done: Sequence[PartitionAudit]) -> tuple[Share, str]:
    """Whether every chain gets to its anchor, and why that can be said."""
    judged = [one for one in done if one.batches or _expected(one)]
    met = [one.anchored and one.finished and not _broken(one) for one in judged]
    if judged and all(met):
        return "verified", "the chain gets to where the anchor says"
    share: Share = "in part" if any(met) else "not verified"
    if judged and not any(one.anchor for one in judged):
        return share, "nothing outside the journal says where the chain ends, so a cut-off end would not be noticed"
    return share, "; ".join(_why_not_ended(judged)) or "there is no batch"


def _why_not_ended(judged: Sequence[PartitionAudit]) -> Iterator[str]:
    if without := [one for one in judged if not one.anchor]:
        yield f"{_partitions(without)} has no anchor"
    if missed := [one for one in judged if one.anchor and not one.anchored]:
        yield f"the chain of {_partitions(missed)} does not get to its anchor"
    if broken := [one for one in judged if one.anchored and _broken(one)]:
        yield f"the chain of {_partitions(broken)} is broken before its anchor"
    if unread := [one for one in judged if one.anchored and not one.finished]:
        yield f"{_partitions(unread)} could not be read to the end"


def _expected(one: PartitionAudit) -> bool:
    """Whether there should be batches, be there any or not."""
    return not one.finished or (bool(one.anchor) and not one.anchored)


def _broken(one: PartitionAudit) -> bool:
    """Whether a record of the chain was altered or is missing: then its last one does not stand for all before it."""
    return any(kind in one.counts for kind in BREAKS)


def _recomputed_in_full(one: PartitionAudit) -> bool:
    return one.finished and 0 < one.batches == one.recomputed


def _partitions(found: Sequence[PartitionAudit]) -> str:
    """
    >>> _partitions([PartitionAudit(partition=3)]), _partitions([PartitionAudit(partition=n) for n in range(7)])
    ('partition 3', 'partitions 0, 1, 2, 3, 4 and 2 more')
    """
    names = ", ".join(str(one.partition) for one in found[:NAMED])
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return f"partition{'s' if len(found) > 1 else ''} {names}{more}"
