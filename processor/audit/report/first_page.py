"""The first page answers three questions: is it verified, is it fair, what is there to worry about?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .data import DeadReason, Statement, TenantReport, Verification
from .words import duration

MANY_DEAD = 0.01
FEW_LABELS = 0.5


def statements(
    verification: Verification, tenants: Sequence[TenantReport], dead: Sequence[DeadReason]
) -> list[Statement]:
    worries = list(_worries(verification, tenants, dead))
    return [verified(verification), fair(tenants), *(worries or [Statement("good", "Nothing to worry about", "")])]


def verified(found: Verification) -> Statement:
    if found.verdict == "verified":
        text = (
            f"All {found.decisions:,} decisions, made in {found.batches:,} batches, follow from the "
            f"{found.requests:,} requests and {found.feedback:,} labels of the record, to the last bit."
        )
        if found.draws != "verified":
            text += " The draws were taken from the record, because not all seeds were given."
        return Statement("good", "The record is verified", text)
    if found.verdict == "differences":
        kinds = len({finding.kind for finding in found.findings})
        text = (
            f"What was recorded is not what follows from the record: {kinds} "
            f"{'kind' if kinds == 1 else 'kinds'} of difference, listed below with their places."
        )
        return Statement("bad", "The record is not as it was made", text)
    return Statement("open", "The record could not be audited in full", " ".join(found.reasons))


def fair(tenants: Sequence[TenantReport]) -> Statement:
    if not tenants:
        return Statement("open", "Nothing can be said about fairness", "There are no decisions.")
    if len(tenants) == 1:
        one = tenants[0].statement
        title = {
            "good": "It is fair",
            "bad": "It is not fair",
            "open": "It is not settled whether it is fair",
            "note": "",
        }
        return Statement(one.tone, title[one.tone], one.text)
    by_tone = {tone: [t for t in tenants if t.statement.tone == tone] for tone in ("good", "open", "bad")}
    said = {
        "good": "within tolerance beyond doubt",
        "bad": "above tolerance, or had an alert that says so",
        "open": "not settled by the labels that have come",
    }
    parts = [
        f"{len(found)} {'is' if len(found) == 1 else 'are'} {said[tone]}" for tone, found in by_tone.items() if found
    ]
    text = f"Of {len(tenants)} tenants, {', '.join(parts)}."
    if by_tone["bad"]:
        names = ", ".join(f"“{t.figures.name}”" for t in by_tone["bad"][:5])
        more = f" and {len(by_tone['bad']) - 5} more" if len(by_tone["bad"]) > 5 else ""
        return Statement("bad", "Not every tenant is fair", f"{text} These are {names}{more}.")
    if by_tone["open"]:
        return Statement("open", "It is not settled whether all tenants are fair", text)
    return Statement("good", "All tenants are fair", text)


def _worries(found: Verification, tenants: Sequence[TenantReport], dead: Sequence[DeadReason]) -> Iterator[Statement]:
    if found.verdict == "verified" and found.end != "verified":
        text = (
            "Nothing outside the journal says where it ends, so a cut-off end would not be noticed. Keep the heads "
            "listed below elsewhere, and hold the next audit against them."
        )
        yield Statement("note", "The end is not anchored", text)
    for one in tenants:
        yield from _of_tenant(one)
    letters, inputs = sum(reason.count for reason in dead), found.requests + found.feedback
    if inputs and letters > MANY_DEAD * inputs:
        most = max(dead, key=lambda reason: reason.count)
        text = f"{letters:,} of {inputs:,} records could not be used, most often because {most.meaning}."
        yield Statement("note", "Many dead letters", text)


def _of_tenant(one: TenantReport) -> Iterator[Statement]:
    figures = one.figures
    name = f"“{figures.name}”"
    still = [alert for alert in figures.alerts if alert.kind != "one-sided"]
    if still:
        noun = "alert is" if len(still) == 1 else "alerts are"
        yield Statement("bad", f"{len(still)} {noun} raised for {name}", still[0].text)
    elif any(alert.state == "raised" for alert in one.alerts):
        raised = sum(alert.state == "raised" for alert in one.alerts)
        text = f"Raised and cleared within the time of the record: {raised}."
        yield Statement("note", f"There were alerts for {name}", text)
    if figures.one_sided:
        yield Statement("bad", f"One-sided labels for {name}", one.statement.text)
    if figures.constant_experts:
        text = f"{', '.join(figures.constant_experts)} said the same nearly always: check whether that is meant."
        yield Statement("note", f"An expert of {name} hardly ever varies", text)
    if figures.absent_experts:
        text = (
            f"{', '.join(figures.absent_experts)} advised on fewer than four fifths of the cases of some group. Error "
            "rates are made equal as if every expert were always there, so a gap may stay."
        )
        yield Statement("note", f"An expert of {name} is often absent", text)
    decided, labels = figures.tally.get("decisions", 0), figures.tally.get("labels_joined", 0)
    if decided and labels < FEW_LABELS * decided:
        waiting = f"{figures.pending:,} still wait, the oldest for {duration(figures.oldest_pending)}"
        text = f"Labels have come for {labels:,} of {decided:,} decisions; {waiting}. The rest is not judged here."
        yield Statement("note", f"Few labels for {name}", text)
    if one.whatif and one.whatif.dominating:
        yield Statement("note", f"Another setting may suit {name} better", one.whatif_text)
