"""The operators' commands: topics, doctor, state, reset, rebuild and resume. Dead letters have a file of their own.

Exit codes of them all: 0 fine, 1 problems found or refused, 2 wrong use or something unreachable.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from . import config as configuration
from .commands import ConfigFile
from .config import Config, ConfigErrors
from .config_tenants import NO_SEED
from .config_values import Duration

CODES = "\n\nExit codes: 0 fine, 1 problems found or refused, 2 wrong use or unreachable."

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]

topics = typer.Typer(
    name="topics", help="Create the topics, or check those that exist. Names come from \\[topics].", no_args_is_help=True
)


def loaded(path: Path | None) -> tuple[Config, str | None]:
    """The configuration for commands that decide nothing: a missing seed is no obstacle, but is told."""
    environment = dict(os.environ)
    try:
        return configuration.load(path, environment), None
    except ConfigErrors as wrong:
        if not all(NO_SEED in problem for problem in wrong.problems):
            raise
        environment["GFORCE_PROCESSING__SEED"] = secrets.token_hex(32)
        return configuration.load(path, environment), wrong.problems[0]


def milliseconds(text: str) -> int:
    """A duration as people write it.

    >>> milliseconds("90d")
    7776000000
    """
    try:
        return int(Duration.read(int(text) if text.isdigit() else text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def agreed(question: str, yes: bool, as_json: bool) -> None:
    """Go on only if a person says so; 1 if not."""
    if yes:
        return
    if as_json:
        raise typer.BadParameter("with --json nobody can be asked: add --yes")
    if not typer.confirm(question):
        raise typer.Exit(1)


def _report(title: str, found: Sequence[Any], as_json: bool) -> None:
    from . import operator_output as output

    if as_json:
        output.document({"findings": found})
    else:
        output.findings(title, found)
    if any(one.level == "problem" for one in found):
        raise typer.Exit(1)


@topics.command("create", epilog=CODES)
def create(
    config: ConfigFile = None,
    partitions: Annotated[
        int, typer.Option(min=1, help="Of every topic. It bounds the number of processes and cannot grow later.")
    ] = 4,
    replication: Annotated[int, typer.Option(help="Replicas; -1 is the broker's default. Use 3 in production.")] = -1,
    retention: Annotated[
        str,
        typer.Option(
            help='Of requests, feedback, decisions, dead letters and alerts: "365d", or "forever". An audit reaches '
            "back as far as the inputs do. The journal and the changelog are always kept."
        ),
    ] = "forever",
    as_json: AsJson = False,
) -> None:
    """Create the topics that do not exist yet, as the processor needs them.

    Those that exist are left as they are; `gforce topics check` says whether they will do.
    """
    from processor.adapters.kafka_admin import create_topics

    from . import operator_output as output
    from .assembly import client_properties, topics_of
    from .topic_plans import FOR_EVER, wanted

    settings, _ = loaded(config)
    kept = FOR_EVER if retention == "forever" else milliseconds(retention)
    plans = wanted(topics_of(settings), partitions, replication, kept)
    created = create_topics(client_properties(settings), plans)
    if as_json:
        output.document({"created": created, "existed": [one.name for one in plans if one.name not in created]})
        return
    rows = [(one.name, "created" if one.name in created else "existed", *_shape(one)) for one in plans]
    output.table("Topics", ("topic", "", "partitions", "configuration"), rows)


def _shape(topic: Any) -> tuple[str, str]:
    return str(topic.partitions), " ".join(f"{name}={value}" for name, value in topic.configs.items())


@topics.command("check", epilog=CODES)
def check(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Check that the topics exist and are kept as the contract needs.

    Counts must be equal for requests, feedback, journal and changelog. The last records of both inputs are looked at:
    do they sit where Java's partitioner (murmur2) puts their key? Records that do not become dead letters.
    """
    from processor.adapters.kafka_admin import describe_topics

    from .assembly import client_properties
    from .operations import opened
    from .topic_plans import examined, partitioners

    settings, _ = loaded(config)
    with opened(settings) as place:
        there = describe_topics(client_properties(settings), settings.topics.full().values())
        found = [*examined(place.topics, there), *partitioners(place.topics, place.reader)]
    _report("Topics", found, as_json)


def doctor(
    config: ConfigFile = None,
    new_seed: Annotated[bool, typer.Option("--new-seed", help="Print a fresh seed and stop.")] = False,
    as_json: AsJson = False,
) -> None:
    """Can this configuration work here, and what would a start do?

    Reaches for Kafka and Redis, tries a transaction (one empty record to the changelog, taken back), compares clocks,
    and says for each partition whether a start would load, catch up, restore, start anew or refuse. Changes nothing.
    """
    from . import diagnosis
    from . import operator_output as output
    from .operations import opened

    if new_seed:
        seed = secrets.token_hex(32)
        output.document({"seed": seed}) if as_json else typer.echo(seed)
        return
    settings, seed_missing = loaded(config)
    with opened(settings) as place:
        found = diagnosis.examine(place, seed_missing)
        unreachable = any(one.what in ("Kafka", "Redis") and one.level == "problem" for one in found)
        told = [] if unreachable else diagnosis.foresights(place)
    if as_json:
        output.document({"findings": found, "partitions": told})
    else:
        output.findings("Doctor", found)
        output.forecasts(told)
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
    from . import operator_output as output
    from .operations import opened
    from .tenant_state import NoSuchTenant, tenant_state

    settings, _ = loaded(config)
    with opened(settings) as place:
        try:
            found = tenant_state(place, tenant)
        except NoSuchTenant as missing:
            typer.echo(f"{missing}", err=True)
            raise typer.Exit(1) from None
    output.document(found) if as_json else output.tenant(found)


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
    from . import operator_output as output
    from .operations import Alive, opened, plan_reset
    from .operations import reset as carry_out

    settings, _ = loaded(config)
    with opened(settings) as place:
        plans = plan_reset(place, start.value)
        if not as_json:
            output.resets(plans)
        if not dry_run:
            agreed(f'Forget all state of the group "{settings.kafka.group}"?', yes, as_json)
            try:
                carry_out(place, plans)
            except Alive as alive:
                typer.echo(f"{alive}", err=True)
                raise typer.Exit(1) from None
    if as_json:
        output.document({"done": not dry_run, "partitions": plans})
    else:
        output.say("nothing was changed" if dry_run else "done: the next start begins there")


def rebuild(
    config: ConfigFile = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this one. [default: all]")] = None,
    force: Annotated[bool, typer.Option("--force", help="Even while a processor is alive.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Make Redis follow Kafka: wipe it and restore it from the changelog.

    A processor does this by itself when Redis is empty or behind. This is for when it is wrong or ahead. With --force
    a running processor notices, stops using what it has and restores the partition itself.
    """
    from . import operator_output as output
    from .operations import Alive, opened
    from .operations import rebuild as carry_out

    settings, _ = loaded(config)
    with opened(settings) as place:
        partitions = place.partitions()
        if partition is not None and partition >= partitions:
            raise typer.BadParameter(f"there are {partitions} partitions, 0 to {partitions - 1}")
        try:
            if not force:
                place.refuse_if_alive()
        except Alive as alive:
            typer.echo(f"{alive}", err=True)
            raise typer.Exit(1) from None
        agreed("Wipe the state in Redis and restore it from Kafka?", yes, as_json)
        chosen = range(partitions) if partition is None else [partition]
        done = [carry_out(place, number, partitions) for number in chosen]
    output.document({"partitions": done}) if as_json else output.rebuilt(done)
    if any(one.trouble for one in done):
        raise typer.Exit(1)


def resume(
    partition: Annotated[int, typer.Argument(min=0, help="The partition that the breaker has stopped.")],
    config: ConfigFile = None,
    url: Annotated[
        str | None, typer.Option(help="The processor that owns it. [default: host and port of \\[http]]")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Let a partition go on after the breaker has stopped it.

    The breaker stops a partition when most of its records are unreadable: somebody points the wrong stream here.
    Correct the producer first. What is unreadable then goes to the dead letters.
    """
    from . import operator_output as output
    from .resumption import resumed

    settings, _ = loaded(config)
    answer = resumed(url or f"http://{settings.http.host}:{settings.http.port}", partition, settings.http.token)
    if as_json:
        output.document(answer)
    else:
        output.say(answer.text)
    if not answer.owned:
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add the operators' commands to ``gforce``."""
    from .dead_letter_commands import app as dead_letters

    app.add_typer(topics)
    for command in (doctor, state, reset, rebuild, resume):
        app.command(epilog=CODES)(command)
    app.add_typer(dead_letters)
