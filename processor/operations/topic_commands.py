"""``gforce topics``: create them, or check those that exist."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from processor.run.run_command import ConfigFile

from .options import CODES, AsJson, loaded, milliseconds

app = typer.Typer(
    name="topics",
    help="Create the topics, or check those that exist. Names come from \\[topics].",
    no_args_is_help=True,
)


@app.command("create", epilog=CODES)
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
    from processor.adapters.kafka.admin import create_topics
    from processor.run.assembly import client_properties, topics_of

    from . import operator_output
    from .topic_plans import FOR_EVER, wanted

    settings, _ = loaded(config)
    kept = FOR_EVER if retention == "forever" else milliseconds(retention)
    plans = wanted(topics_of(settings), partitions, replication, kept)
    created = create_topics(client_properties(settings), plans)
    if as_json:
        operator_output.document(
            {"created": created, "existed": [one.name for one in plans if one.name not in created]}
        )
        return
    rows = [(one.name, "created" if one.name in created else "existed", *_shape(one)) for one in plans]
    operator_output.table("Topics", ("topic", "", "partitions", "configuration"), rows)


def _shape(topic: Any) -> tuple[str, str]:
    return str(topic.partitions), " ".join(f"{name}={value}" for name, value in topic.configs.items())


@app.command("check", epilog=CODES)
def check(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Check that the topics exist and are kept as the contract needs.

    Counts must be equal for requests, feedback, journal and changelog. The last records of both inputs are looked at:
    do they sit where Java's partitioner (murmur2) puts their key? Records that do not become dead letters. And the
    group's offsets, the journal and the changelog are compared: do they lead to the same batch, were the inputs created
    again, are there records that are not ours?
    """
    from processor.adapters.kafka.admin import describe_topics
    from processor.run.assembly import client_properties

    from . import history, operator_output
    from .group import opened
    from .topic_plans import examined, partitioners

    settings, _ = loaded(config)
    with opened(settings) as place:
        there = describe_topics(client_properties(settings), settings.topics.full().values())
        found = [*examined(place.topics, there), *partitioners(place.topics, place.reader)]
        if None not in there.values():
            found += history.examine(place.recovery, place.partitions())
    if as_json:
        operator_output.document({"findings": found})
    else:
        operator_output.findings("Topics", found)
    if any(one.level == "problem" for one in found):
        raise typer.Exit(1)
