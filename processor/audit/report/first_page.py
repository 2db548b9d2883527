"""The first page answers three questions: is it verified, is it fair, what is there to worry about?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .data import Coverage, DeadReason, Statement, TenantReport, Verification
from .words import CONFIDENCE_TEXT, one_sided_text, when

DEAD_LETTER_SHARE_NOTED = 0.01
LABEL_SHARE_NOTED = 0.5
MAX_NAMED = 5


def statements(
    verification: Verification,
    tenants: Sequence[TenantReport],
    dead: Sequence[DeadReason],
    coverage: Sequence[Coverage] = (),
) -> list[Statement]:
    """What must be known before anything else, the answers, and what to look at: the bad first, other settings last."""
    worries = sorted(
        [*_later_alerts(coverage), *_notes(verification, tenants, dead)], key=lambda one: one.tone != "bad"
    )
    answers = [*_partial(coverage), verified_statement(verification), fairness_of_tenants(tenants, coverage)]
    return [*answers, *(worries or [Statement("good", "Nothing to worry about", "")])]


def _partial(coverage: Sequence[Coverage]) -> Iterator[Statement]:
    """That the figures leave something out, and what."""
    parts = [one for one in coverage if one.why]
    if not parts:
        return
    made, of = sum(one.batches for one in coverage), sum(one.of for one in coverage)
    said = [f"They are made of {made:,} of {of:,} batches; the rest is in no figure here."]
    said += [_partition_text(one) for one in parts[:MAX_NAMED]]
    if len(parts) > MAX_NAMED:
        said.append(f"So it is with {len(parts) - MAX_NAMED:,} more partitions.")
    yield Statement("bad", "The figures are partial", " ".join(said))


def _partition_text(one: Coverage) -> str:
    said = []
    if one.tenants:
        verb = "is" if len(one.tenants) == 1 else "are"
        said.append(
            f"{_names_text(one.tenants)} {verb} shown up to {when(one.until)}, {one.batches:,} of {one.of:,} batches"
        )
    if one.missing:
        said.append(f"{_names_text(one.missing)} {'is' if len(one.missing) == 1 else 'are'} missing altogether")
    return f"Partition {one.partition}: {'; '.join(said) or 'nothing of it is shown'}, because {one.why}."


def _names_text(tenants: Sequence[str]) -> str:
    names = ", ".join(f"“{name}”" for name in tenants[:MAX_NAMED])
    return names + (f" and {len(tenants) - MAX_NAMED:,} more" if len(tenants) > MAX_NAMED else "")


def _later_alerts(coverage: Sequence[Coverage]) -> Iterator[Statement]:
    """Alerts that the record holds, of the time for which there are no figures."""
    alerts = [alert for one in coverage for alert in one.later_alerts]
    for name in sorted({alert.tenant for alert in alerts}):
        raised = sum(alert.state == "raised" for alert in alerts if alert.tenant == name)
        cleared = sum(alert.state == "cleared" for alert in alerts if alert.tenant == name)
        text = f"Beyond the figures the record holds {raised:,} raised and {cleared:,} cleared."
        yield Statement("bad", f"Alerts for “{name}” could not be recomputed", text)


def verified_statement(found: Verification) -> Statement:
    if found.verdict == "verified":
        text = (
            f"All {found.decisions:,} decisions, made in {found.batches:,} batches, follow from the "
            f"{found.requests:,} requests and {found.feedback:,} labels of the record"
        )
        if found.draws == "verified":
            return Statement("good", "The record is verified", f"{text}, to the last bit.")
        which = "Some draws" if found.draws == "in part" else "The draws"
        text += (
            f", given the draws. {which} could not be checked: they were taken from the record, because not all seeds "
            "were given. Whether chance was left to decide is not known of these."
        )
        return Statement("good", "The record is verified, but not all draws", text)
    if found.verdict == "differences":
        kinds = len({finding.kind for finding in found.findings})
        text = (
            f"What was recorded is not what follows from the record: {kinds} "
            f"{'kind' if kinds == 1 else 'kinds'} of difference, listed below with their places."
        )
        return Statement("bad", "The record is not as it was made", text)
    return Statement("open", "The record could not be audited in full", " ".join(found.reasons))


def fairness_of_tenants(tenants: Sequence[TenantReport], coverage: Sequence[Coverage] = ()) -> Statement:
    missing = [name for one in coverage for name in one.missing]
    if not tenants:
        text = f"There are no figures of {_names_text(missing)}." if missing else "There are no decisions."
        return Statement("open", "Nothing can be said about fairness", text)
    if len(tenants) == 1 and not missing:
        one = tenants[0].statement
        if tenants[0].figures.one_sided:
            return Statement(one.tone, "It cannot be judged whether it is fair", one.text)
        title = {
            "good": "It is fair",
            "bad": "It is not fair",
            "open": "It is not settled whether it is fair",
            "note": "",
        }
        return Statement(one.tone, title[one.tone], one.text)
    judged = [one for one in tenants if not one.figures.one_sided]
    by_tone = {tone: [t for t in judged if t.statement.tone == tone] for tone in ("good", "open", "bad")}
    unjudged = len(tenants) - len(judged)
    said = {
        "good": f"within tolerance, {CONFIDENCE_TEXT}",
        "bad": "above tolerance, or had an alert that says so",
        "open": "not settled by the labels that have come",
    }
    parts = [
        f"{len(found)} {'is' if len(found) == 1 else 'are'} {said[tone]}" for tone, found in by_tone.items() if found
    ]
    if unjudged:
        parts.append(f"{unjudged} cannot be judged because labels come for some decisions only")
    if missing:
        parts.append(f"{len(missing)} {'is' if len(missing) == 1 else 'are'} missing from the figures")
    text = f"Of {len(tenants) + len(missing)} tenants, {', '.join(parts)}."
    if any(one.partial for one in tenants):
        text = f"As far as the figures go: {text[0].lower()}{text[1:]}"
    if by_tone["bad"]:
        names = _names_text([one.figures.name for one in by_tone["bad"]])
        return Statement("bad", "Not every tenant is fair", f"{text} Not fair: {names}.")
    if by_tone["open"] or unjudged or missing:
        return Statement("open", "It is not settled whether all tenants are fair", text)
    return Statement("good", "All tenants are fair", text)


def _notes(found: Verification, tenants: Sequence[TenantReport], dead: Sequence[DeadReason]) -> Iterator[Statement]:
    if found.verdict == "verified" and found.end != "verified":
        text = (
            "Nothing outside the journal says where it ends, so a cut-off end would not be noticed. Keep the heads "
            "listed below elsewhere, and hold the next audit against them."
        )
        yield Statement("note", "The end is not anchored", text)
    for one in tenants:
        yield from _tenant_notes(one)
    letters, inputs = sum(reason.count for reason in dead), found.requests + found.feedback
    if inputs and letters > DEAD_LETTER_SHARE_NOTED * inputs:
        most = max(dead, key=lambda reason: reason.count)
        text = f"{letters:,} of {inputs:,} records could not be used, most often because {most.meaning}."
        yield Statement("note", "Many dead letters", text)
    for one in tenants:
        if one.whatif and any(other.beyond_noise for other in one.whatif.dominating):
            yield Statement("note", f"Another setting may suit “{one.figures.name}” better", one.whatif_text)


def _tenant_notes(one: TenantReport) -> Iterator[Statement]:
    figures = one.figures
    name = f"“{figures.name}”"
    still = [alert for alert in figures.alerts if alert.kind != "one-sided"]
    open_ones = {alert.number for alert in figures.alerts}
    over = sum(alert.state == "raised" and alert.number not in open_ones for alert in one.alerts)
    if still:
        noun = "alert is" if len(still) == 1 else "alerts are"
        doubt = " The labels are one-sided, so it may mean nothing." if figures.one_sided else ""
        yield Statement("bad", f"{len(still)} {noun} raised for {name}", still[0].text + doubt)
    elif over:
        text = f"Raised and cleared within the time of the record: {over}."
        yield Statement("note", f"There were alerts for {name}", text)
    if figures.one_sided:
        yield Statement("bad", f"One-sided labels for {name}", one_sided_text(figures))
    if figures.constant_experts:
        text = f"{', '.join(figures.constant_experts)} said the same nearly always: check whether that is meant."
        yield Statement("note", f"An expert of {name} hardly ever varies", text)
    if figures.absent_experts:
        text = (
            f"{', '.join(figures.absent_experts)} advised on fewer than four fifths of the cases of some group. Error "
            "rates are made equal as if every expert were always there, so a gap may stay."
        )
        yield Statement("note", f"An expert of {name} is often absent", text)
    counts = one.label_counts
    if counts.assumed:
        share = f"{counts.assumed:,} of the {counts.joined + counts.assumed:,} labels in the figures never came."
        text = f"{share} These decisions expired, and count as if the configured label had come."
        yield Statement("note", f"Labels of {name} are assumed", text)
    if counts.decisions and counts.joined < LABEL_SHARE_NOTED * (counts.decisions - counts.without):
        yield Statement("note", f"Few labels for {name}", one.labels_text)
    elif counts.without:
        yield Statement("note", f"Labels for {name} come for positive decisions only", one.labels_text)
