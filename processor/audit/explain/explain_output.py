"""What ``gforce explain`` prints."""

from __future__ import annotations

from datetime import timedelta

from rich.markup import escape
from rich.table import Table

from processor.operations.operator_output import document, payload, say, when
from processor.terminal import terminal

from .explain import Explanation, InstanceShare
from .label_history import LabelHistory

__all__ = ["document", "print_explanation"]


def print_explanation(found: Explanation) -> None:
    """For a person."""
    _print_head(found)
    for text in found.differences:
        terminal().print(f"[bold red]the record of decisions says otherwise[/]  {_text(text)}", highlight=False)
    _print_answers(found)
    _print_weights(found)
    _print_draws(found)
    _print_label_history(found)


def _print_head(found: Explanation) -> None:
    who = f'"{found.expert}"' if found.expert else "exploration"
    chance = found.probabilities[found.decision]
    terminal().print(
        f"[bold]{_text(found.decision)}[/], on the advice of [bold]{_text(who)}[/]: {_share(chance)} likely",
        highlight=False,
    )
    policy = f"{found.policy}/{found.objective}" if found.objective else found.policy
    say(f'decision "{_plain(found.decision_id)}" of tenant "{_plain(found.tenant)}", group "{_plain(found.group)}"')
    say(f"asked for at {when(found.requested)} (UTC), at offset {found.request_offset} of partition {found.partition}")
    say(f"decided in batch {found.batch} of lineage {found.lineage}, under configuration {found.config} ({policy})")
    say(f"the rule rested on {found.labels_learnt} labels")


def _print_answers(found: Explanation) -> None:
    table = Table("label", "said by", "how likely", title="Answers", title_justify="left", title_style="bold")
    for label, chance in found.probabilities.items():
        by = ", ".join(expert for expert, said in found.predictions.items() if said == label) or "nobody"
        mark = " ←" if label == found.decision else ""
        table.add_row(_text(label) + mark, _text(by), f"{_share(chance)} ({found.parts[label]} of 4294967296)")
    terminal().print(table, highlight=False)


def _print_weights(found: Explanation) -> None:
    for one in found.instances:
        title = "Whose advice to take" if one.name is None else _title(found, one)
        table = Table(
            "expert", "said", "share π", "wrong before", title=title, title_justify="left", title_style="bold"
        )
        for expert in one.experts:
            mine = expert.expert == found.expert and one.name == found.instance
            wrong = f"{expert.errors} of {expert.trials}" if expert.trials else "never tried"
            table.add_row(
                _text(expert.expert) + (" ←" if mine else ""), _text(expert.said), _share(expert.share), wrong
            )
        terminal().print(table, highlight=False)
    if found.explore is not None:
        say(
            f"whatever the experts say, the decision is positive with a probability of {_share(found.explore)}, so "
            "that something is learnt about everybody"
        )


def _title(found: Explanation, one: InstanceShare) -> str:
    return f'Instance "{_text(one.name or "")}" (q = {_share(one.chance)} for group "{_text(found.group)}")'


def _print_draws(found: Explanation) -> None:
    if found.draws is None:
        say("the draws: recomputing them needs the seed (--config or --seed-file)")
        return
    for draw in found.draws:
        say(
            f"drawn for the {draw.what}: {draw.value:.6f}, which lies from {draw.above:.6f} to {draw.below:.6f}: "
            f"{_plain(draw.chose)}"
        )


def _print_label_history(found: Explanation) -> None:
    later: LabelHistory = found.aftermath
    due = when(later.due) if later.due is not None else ""
    if later.fate == "labelled":
        right = "right" if later.correct else "wrong"
        ago = timedelta(seconds=round((later.delay or 0) / 1_000))
        came = f"{ago} after the request" if (later.delay or 0) >= 0 else f"{-ago} before the request"
        say(f'learnt: the true label "{_plain(later.label or "")}" came {came} (batch {later.batch}): it was {right}')
    elif later.fate == "expired":
        counts = f'it counts as "{_plain(later.label)}"' if later.label else "nothing was learnt from it"
        say(f"no label came: it expired at {due} (UTC), in batch {later.batch}; {counts}")
    else:
        say(f"no label has come yet: it waits until {due} (UTC)")
    for label in later.labels:
        if label.outcome != "counted":
            say(f'another label "{_plain(label.label)}" came in batch {label.batch}: {label.outcome}')


def _share(value: float) -> str:
    return f"{100 * value:.2f} %"


def _plain(text: str) -> str:
    """Without anything a terminal might act on."""
    return payload(text.encode())


def _text(text: str) -> str:
    return escape(_plain(text))
