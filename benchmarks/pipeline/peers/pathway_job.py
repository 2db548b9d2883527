"""Pathway: decode, count by tenant, emit the counts that changed. Runs in its own environment."""

import os
from pathlib import Path

import pathway as pw


class Event(pw.Schema):
    tenant: str
    decision_id: str
    label: str | None = pw.column_definition(default_value=None)


settings = {
    "bootstrap.servers": os.environ["BENCH_BOOTSTRAP"],
    "group.id": os.environ["BENCH_GROUP"],
    "auto.offset.reset": "earliest",
    "fetch.queue.backoff.ms": "1",
    "session.timeout.ms": "6000",
}
tables = [
    pw.io.kafka.read(settings, topic=name, format="json", schema=Event, autocommit_duration_ms=100)
    for name in os.environ["BENCH_INPUT"].split(",")
]
events = tables[0].concat_reindex(*tables[1:])
counts = events.groupby(pw.this.tenant).reduce(
    pw.this.tenant, events=pw.reducers.count(), labels=pw.reducers.count(pw.this.label)
)
pw.io.kafka.write(counts, settings, topic_name=os.environ["BENCH_OUTPUT"], format="json")

# Its output does not say how many records went in; the sum over the tenants does.
latest: dict[str, int] = {}
done = Path(os.environ["BENCH_DONE"])


def noted(key, row, time, is_addition):
    if is_addition:
        latest[row["tenant"]] = row["events"]


def told(time):
    done.write_text(str(sum(latest.values())))


pw.io.subscribe(counts, on_change=noted, on_time_end=told)

if __name__ == "__main__":
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
