"""Do the group's offsets, the journal and the changelog of each partition belong together? Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from processor.core.errors import GForceError
from processor.core.stream.identity import GENESIS, Identity
from processor.ports.log import LogError, RetryableError
from processor.service.recovery import ChangelogGapError, Recovery

from .topic_plans import CheckResult


def examine(recovery: Recovery, partitions: int) -> list[CheckResult]:
    """What a restore of each partition from Kafka alone would meet."""
    found = [finding for number in range(partitions) for finding in of_partition(recovery, number)]
    agreed = CheckResult("ok", "history", f"offsets, journal and changelog of {partitions} partitions agree")
    return found if any(finding.level == "problem" for finding in found) else [agreed, *found]


def of_partition(recovery: Recovery, number: int) -> Iterator[CheckResult]:
    """Problems: a restore would be refused. Warnings: records that are not ours, which it skips."""
    foreign: dict[tuple[str, int], str] = {}
    lost: list[str] = []

    def notify(event: str, details: dict[str, object]) -> None:
        if event == "foreign record":
            foreign[str(details["topic"]), int(str(details["offset"]))] = str(details["why"])
        elif event == "offsets lost":
            lost.append(f"the group's offsets are at batch {details['offsets']}, the journal at {details['journal']}")

    what = f"partition {number}"
    try:
        _restore(replace(recovery, notify=notify), number)
    except RetryableError as error:
        yield CheckResult("warning", what, str(error), "look again in some seconds")
    except (LogError, GForceError) as error:
        yield CheckResult("problem", what, str(error))
    for text in lost:
        yield CheckResult("warning", what, text, "Kafka has lost offsets: a start goes on from the journal")
    for (topic, offset), why in foreign.items():
        remedy = "it is skipped; find out who writes to this topic"
        yield CheckResult("warning", what, f"{topic} [{number}] at {offset}: {why}", remedy)


def _restore(recovery: Recovery, number: int) -> None:
    """Read all that a restore reads."""
    committed_state = recovery.committed_state(number)
    if committed_state is None or committed_state.identity.sequence == 0:
        return
    try:
        for _ in recovery.missing_batches(
            number, Identity(committed_state.identity.lineage, 0, GENESIS), committed_state
        ):
            pass
    except ChangelogGapError as gap:
        raise recovery.refusal(number, committed_state.identity, gap) from None
