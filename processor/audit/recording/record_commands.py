"""``gforce record`` and ``gforce play``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from processor.audit.command_inputs import parse_partitions, progress_bar
from processor.audit.sources.source import ROLES, RecordingError, Role, open_source, parse_role
from processor.operations.options import CODES, AsJson, loaded
from processor.run.run_command import ConfigFile

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kMGT]?i?)B?", re.IGNORECASE)
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parse_size(text: str) -> int:
    """Bytes, as people write them.

    >>> parse_size("256MB"), parse_size("1GiB"), parse_size("5000")
    (256000000, 1073741824, 5000)
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None or found[2].lower() not in _UNITS or not float(found[1]):
        raise typer.BadParameter(f'"{text}" is no size: write for instance 256MB or 1GB')
    return max(1, int(float(found[1]) * _UNITS[found[2].lower()]))


def _parse_roles(texts: Sequence[str]) -> list[Role]:
    named = {parse_role(part) for text in texts for part in text.split(",")}
    return [role for role in ROLES if role in named]


@contextmanager
def _exit_on_refusal() -> Iterator[None]:
    """What is refused ends in one line and 1; other errors are reported by ``main``, with 2."""
    from .plan import RecordingRefusedError

    try:
        yield
    except RecordingRefusedError as refused:
        typer.echo(f"{refused}", err=True)
        raise typer.Exit(1) from None
    except OSError as problem:
        raise RecordingError(f"{problem.filename or 'writing'}: {problem.strerror}") from None


def record(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the recording, made if missing.")],
    config: ConfigFile = None,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            help="Of requests, feedback, decisions, journal, changelog, dead-letters, alerts. \\[default: all but "
            "changelog]"
        ),
    ] = None,
    with_state: Annotated[
        bool,
        typer.Option("--with-state", help="The changelog too: an audit of a window starts from the snapshot in it."),
    ] = False,
    partitions: Annotated[list[str] | None, typer.Option(help='As "0,2,5-7". \\[default: all]')] = None,
    since: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            help="An offset or a time (ISO 8601, UTC unless it says otherwise), of all topics, or requests=1500, or "
            "requests/0=1500. \\[default: the first that is kept]",
        ),
    ] = None,
    until: Annotated[
        list[str] | None, typer.Option("--to", help="As --from; not included. \\[default: what is there now]")
    ] = None,
    split_size: Annotated[str, typer.Option(help="Begin a new file beyond this size.")] = "256MB",
    compress: Annotated[str, typer.Option(help="zstd, gzip or none.")] = "zstd",
    as_json: AsJson = False,
) -> None:
    """Record topics into files that an audit can read anywhere, years later.

    One JSON object per record, in the shape of `kcat -J`, and a manifest with ranges, counts and SHA-256. Run it again
    to go on where it ended, whether it was finished, stopped or killed. Committed records only. A range by time is
    widened so that the journal's first and last batches find their requests and labels.
    """
    from processor.audit.sources.line_files import COMPRESSIONS
    from processor.operations.operator_output import document
    from processor.run.assembly import client_properties

    from .plan import DEFAULT_ROLES, RecordingOrder, prepare_work
    from .record import sole_writer, write_recording

    if compress not in COMPRESSIONS:
        raise typer.BadParameter(f'"{compress}" is no compression: write {", ".join(COMPRESSIONS)}')
    settings, _ = loaded(config)
    roles = _parse_roles(topics) if topics else list(DEFAULT_ROLES)
    roles += ["changelog"] if with_state and "changelog" not in roles else []
    names = settings.topics.full()
    order = RecordingOrder(
        folder=out,
        topics={role: names[role] for role in roles},
        group=settings.kafka.group,
        prefix=settings.topics.prefix,
        partitions=parse_partitions(partitions) if partitions else None,
        since=tuple(since or ()),
        until=tuple(until or ()),
        compression=compress,
        split_size=parse_size(split_size),
    )
    properties = client_properties(settings)
    with _exit_on_refusal(), sole_writer(out):
        work = prepare_work(properties, order)
        with progress_bar("offsets", work.offsets) as progress:
            done = write_recording(properties, order, work, progress)
    summary = _summary(out, done)
    document(summary) if as_json else _print_summary(summary)


def _summary(folder: Path, done: Any) -> dict[str, Any]:
    from processor.audit.sources.manifest import manifest_digest

    ranges = [
        {
            "topic": one.topic,
            "partition": one.partition,
            "start": one.start,
            "end": one.end,
            "records": one.records,
            "files": len(one.files),
            "bytes": sum(file.bytes for file in one.files),
        }
        for one in done.manifest.ranges
    ]
    return {
        "folder": str(folder),
        "added": done.added,
        "records": done.manifest.records,
        "ranges": ranges,
        "anchors": done.manifest.anchors,
        "gone": done.gone,
        "manifest_sha256": manifest_digest(folder),
    }


def _print_summary(summary: dict[str, Any]) -> None:
    from processor.operations.operator_output import say, table

    columns = ("topic", "partition", "start", "end", "records", "files", "bytes")
    table("Recorded", columns, [[str(one[column]) for column in columns] for one in summary["ranges"]])
    for one in summary["gone"]:
        missing = one.why or f"are gone {_missing_reason(one)}"
        say(f"{one.topic}[{one.partition}]: offsets {one.since} to {one.until - 1} {missing}")
    say(f"{summary['records']} records in {summary['folder']}, {summary['added']} of them now")
    say(f"SHA-256 of the manifest, to be kept elsewhere: {summary['manifest_sha256']}")


def _missing_reason(one: Any) -> str:
    """Only the changelog continues after missing offsets, see ``plan``."""
    if not one.since:
        return "(retention), it starts after them"
    return "(trimmed behind a snapshot), it goes on after them: the manifest says so, and an audit does not expect them"


def play(
    recording: Annotated[list[Path], typer.Argument(help="A recording's folder, or files in the shape of `kcat -J`.")],
    into: Annotated[
        list[str],
        typer.Option(help='The topics to send to: a prefix for all ("copy."), or one by one, as requests=other-topic.'),
    ],
    config: ConfigFile = None,
    topics: Annotated[list[str] | None, typer.Option(help="What to play. \\[default: requests and feedback]")] = None,
    pace: Annotated[str, typer.Option(help="original, max, or how many times as fast: 20x.")] = "max",
    keep_timestamps: Annotated[
        bool,
        typer.Option(
            "--keep-timestamps/--now",
            help="The recorded times or the present. Topics with a retention drop records with old times.",
        ),
    ] = True,
    same_partitions: Annotated[
        bool,
        typer.Option("--same-partitions", help="The recorded partition numbers. \\[default: by key, as Java does]"),
    ] = False,
    into_the_same: Annotated[
        bool,
        typer.Option("--yes-into-the-same", help="Allow the very topics it was recorded from: all is doubled there."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Send a recording to other topics: at its own pace, faster, or as fast as possible.

    Keys, values and headers stay as they were. The topics must exist; the cluster is that of the configuration.
    """
    from processor.adapters.kafka.sender import KafkaSender
    from processor.operations.operator_output import document, say
    from processor.run.assembly import client_properties

    from .play import Play, check_targets, count_records, parse_speed, play_records, target_topics

    settings, _ = loaded(config)
    roles = _parse_roles(topics or ["requests", "feedback"])
    speed = parse_speed(pace)
    properties = client_properties(settings)
    names = settings.topics.full()
    with _exit_on_refusal(), open_source(recording, names) as source:  # type: ignore[arg-type]
        named = target_topics(source, roles, into)
        check_targets(properties, source, named, same_partitions, into_the_same)
        plan = Play(topics=named, speed=speed, keep_timestamps=keep_timestamps, same_partitions=same_partitions)
        sender = KafkaSender(client_properties(settings, settings.kafka.producer_properties.reveal()))
        with progress_bar("records", count_records(source, named)) as progress:
            counts = play_records(source, plan, sender, lambda role: progress(1))
    sent = {named[role]: counts[role] for role in named}
    if as_json:
        document({"sent": sent})
    else:
        say(", ".join(f"{count} to {topic}" for topic, count in sent.items()))


def register(app: typer.Typer) -> None:
    """Add both to ``gforce``."""
    for command in (record, play):
        app.command(epilog=CODES)(command)
