"""``gforce doctor``, ``state``, ``reset``, ``rebuild``, ``resume``, ``skip`` and ``acknowledge``; registers all."""

from __future__ import annotations

import secrets
from enum import StrEnum
from typing import Annotated, Any

import typer

from processor.run.run_command import ConfigFile

from .dead_letter_commands import app as dead_letters
from .options import CODES, AsJson, DryRun, Yes, agreed, loaded
from .topic_commands import app as topics


def _refuse_if_alive(place: Any) -> None:
    members = place.group.members()
    if not members:
        return
    kafka = place.config.kafka
    typer.echo(
        f'in the group "{kafka.group}" are still {", ".join(members)}: stop them first. A stopped processor counts '
        f"until its session has timed out ({kafka.session_timeout_ms / 1_000:g} s).",
        err=True,
    )
    raise typer.Exit(1)


def doctor(
    config: ConfigFile = None,
    new_seed: Annotated[bool, typer.Option("--new-seed", help="Print a fresh seed and stop.")] = False,
    as_json: AsJson = False,
) -> None:
    """Can this configuration work here, and what would a start do?

    Reaches for Kafka and Redis, tries a transaction (one empty record to the changelog, taken back), compares clocks.
    Says for each partition whether a start would load, catch up, restore, start anew or refuse, and whether its
    offsets, journal and changelog belong together. Changes nothing.
    """
    from . import doctor as diagnosis
    from . import operator_output
    from .group import opened

    if new_seed:
        seed = secrets.token_hex(32)
        operator_output.document({"seed": seed}) if as_json else typer.echo(seed)
        return
    settings, seed_missing = loaded(config)
    with opened(settings) as place:
        found = diagnosis.examine(place, seed_missing)
        unreachable = diagnosis.unreachable(found, "Kafka", "Redis")
        blind = unreachable or diagnosis.unreachable(found, "topics")
        told = [] if blind else diagnosis.foresights(place)
    if as_json:
        operator_output.document({"findings": found, "partitions": told})
    else:
        operator_output.findings("Doctor", found)
        if told:
            operator_output.forecasts(told)
    if unreachable:
        raise typer.Exit(2)
    if any(one.level == "problem" for one in found) or any(one.action == "refuse" for one in told):
        raise typer.Exit(1)


def state(
    tenant: Annotated[str, typer.Argument(help="The tenant's name, as in the events.")],
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """What the processor has learnt about a tenant, from Redis.

    Labels by group, error rates, gaps of the policy in force and of the shadows, and what has happened, over the
    lifetime. Reads without claiming: the owner does not notice.
    """
    from . import operator_output
    from .group import opened
    from .tenant_state import NoSuchTenantError, tenant_state

    settings, _ = loaded(config)
    with opened(settings) as place:
        try:
            found = tenant_state(place, tenant)
        except NoSuchTenantError as missing:
            typer.echo(f"{missing}", err=True)
            raise typer.Exit(1) from None
    operator_output.document(found) if as_json else operator_output.tenant(found)


class From(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"


def reset(
    config: ConfigFile = None,
    start: Annotated[
        From,
        typer.Option(
            "--from",
            help="Where to read on: earliest decides all kept requests AGAIN, latest skips what is waiting, committed "
            "goes on where the group was.",
        ),
    ] = From.COMMITTED,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Begin a new lineage: forget everything learnt and every pending decision.

    For changed partition counts, offsets set by hand, or a mirrored cluster. Refuses while a processor of the group is
    alive. The journal stays, so the old lineage can still be audited. Start the processor within the broker's
    offsets.retention.minutes (seven days): with the group's offsets the reset itself would expire.
    """
    from . import operator_output
    from .group import opened, plan_reset
    from .group import reset as carry_out

    settings, _ = loaded(config)
    with opened(settings) as place:
        plans = plan_reset(place, start.value)
        if not as_json:
            operator_output.resets(plans)
        if not dry_run:
            _refuse_if_alive(place)
            agreed(f'Forget all state of the group "{settings.kafka.group}"?', yes, as_json)
            carry_out(place, plans)
    if as_json:
        operator_output.document({"done": not dry_run, "partitions": plans})
    else:
        operator_output.say("nothing was changed" if dry_run else "done: the next start begins there")


def rebuild(
    config: ConfigFile = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this one. \\[default: all]")] = None,
    force: Annotated[bool, typer.Option("--force", help="Even while a processor is alive.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Make Redis follow Kafka: wipe it and restore it from the changelog.

    A processor does this by itself when Redis is empty or behind. This is for when it is wrong or ahead. With --force
    a running processor notices, stops using what it has and restores the partition itself.
    """
    from . import operator_output
    from .group import opened
    from .group import rebuild as carry_out

    settings, _ = loaded(config)
    with opened(settings) as place:
        partitions = place.partitions()
        if partition is not None and partition >= partitions:
            raise typer.BadParameter(f"there are {partitions} partitions, 0 to {partitions - 1}")
        if not force:
            _refuse_if_alive(place)
        agreed("Wipe the state in Redis and restore it from Kafka?", yes, as_json)
        chosen = range(partitions) if partition is None else [partition]
        done = [carry_out(place, number, partitions) for number in chosen]
    operator_output.document({"partitions": done}) if as_json else operator_output.rebuilt(done)
    if any(one.trouble for one in done):
        raise typer.Exit(1)


def resume(
    partition: Annotated[int, typer.Argument(min=0, help="The partition that is broken or quarantined.")],
    config: ConfigFile = None,
    url: Annotated[
        str | None, typer.Option(help="The processor that owns it. \\[default: host and port of \\[http]]")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Let a partition go on that waits for a person: the breaker has stopped it, or it is quarantined.

    The breaker stops a partition when most of its records are unreadable: somebody points the wrong stream here.
    Correct the producer first. What is unreadable then goes to the dead letters. A partition is quarantined when it
    cannot go on without a person: /readyz and the log say why. Mend the cause first; it is then recovered again.
    """
    from . import operator_output
    from .resumption import resumed

    settings, _ = loaded(config)
    answer = resumed(url or settings.http.url, partition, settings.http.token)
    if as_json:
        operator_output.document(answer)
    else:
        operator_output.say(answer.text)
    if not answer.owned:
        raise typer.Exit(1)


class InputTopic(StrEnum):
    REQUESTS = "requests"
    FEEDBACK = "feedback"


def skip(
    partition: Annotated[int, typer.Argument(min=0, help="The partition that stands still.")],
    topic: Annotated[InputTopic, typer.Option(help="Of which input.")],
    offset: Annotated[int, typer.Option(min=0, help="The offset that cannot be read, as /readyz and the log name it.")],
    to: Annotated[
        int | None,
        typer.Option(min=1, help="Go on at this offset. \\[default: after the batch that cannot be read]"),
    ] = None,
    config: ConfigFile = None,
    url: Annotated[
        str | None, typer.Option(help="The processor that owns it. \\[default: host and port of \\[http]]")
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Go on after a batch of an input that Kafka's client cannot read.

    Such a batch is damaged, or too large once it is decompressed. The processor accepts only the offset it is to read
    next, and only what really cannot be read; it looks how far that reaches. The journal says what was skipped, and
    the audit reports it.
    """
    from msgspec.structs import replace

    from . import operator_output
    from .skipping import Skipping, skipped

    settings, _ = loaded(config)
    where = url or f"http://{settings.http.host}:{settings.http.port}"
    wanted = Skipping(topic.value, offset, to, dry_run=True)
    answer = skipped(where, partition, wanted, settings.http.token)
    found = answer.to > offset
    if found and not dry_run:
        if not as_json:
            operator_output.say(answer.text)
        agreed(f"Skip them? Whatever is in offsets {offset} to {answer.to - 1} is lost.", yes, as_json)
        answer = skipped(where, partition, replace(wanted, to=answer.to, dry_run=False), settings.http.token)
    operator_output.document(answer) if as_json else operator_output.say(answer.text)
    if not (answer.done or (dry_run and found)):
        raise typer.Exit(1)


def acknowledge(
    tenant: Annotated[str, typer.Argument(help="The tenant's name, as in the events.")],
    number: Annotated[int, typer.Argument(min=1, help="The alert's number, as on the topic and the page.")],
    config: ConfigFile = None,
    url: Annotated[
        str | None, typer.Option(help="The processor that has the tenant. \\[default: host and port of \\[http]]")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say that a tolerance alert has been seen: it clears, and its test begins anew.

    Such an alert stays raised until then, because it says that the gap was too large at some time, and not that it is
    now. Drift and one-sided alerts clear by themselves.
    """
    from . import operator_output
    from .acknowledgement import acknowledged

    settings, _ = loaded(config)
    answer = acknowledged(url or settings.http.url, tenant, number, settings.http.token)
    if as_json:
        operator_output.document(answer)
    else:
        operator_output.say(answer.text)
    if not answer.done:
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add the operators' commands to ``gforce``."""
    app.add_typer(topics)
    for command in (doctor, state, reset, rebuild, resume, skip, acknowledge):
        app.command(epilog=CODES)(command)
    app.add_typer(dead_letters)
