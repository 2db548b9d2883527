"""Quix Streams: decode, count by tenant in its state store, emit. Runs in its own environment."""

import os

from quixstreams import Application

app = Application(
    broker_address=os.environ["BENCH_BOOTSTRAP"],
    consumer_group=os.environ["BENCH_GROUP"],
    auto_offset_reset="earliest",
    state_dir=os.environ["BENCH_STATE"],
    consumer_extra_config={"fetch.queue.backoff.ms": 1, "queued.min.messages": 20_000},
    producer_extra_config={"linger.ms": 5, "compression.type": "lz4"},
    loglevel="WARNING",
)
output = app.topic(os.environ["BENCH_OUTPUT"], value_serializer="json", key_serializer="bytes")


def count(event, state):
    requests, labels = state.get("requests", 0), state.get("labels", {})
    if "label" in event:
        said = event["label"]
        labels[said] = labels.get(said, 0) + 1
        state.set("labels", labels)
    else:
        said = next(iter(event["predictions"].values()))
        requests += 1
        state.set("requests", requests)
    return {
        "tenant": event["tenant"],
        "decision_id": event["decision_id"],
        "group": event.get("group"),
        "decision": said,
        "requests": requests,
        "labels": labels,
    }


for name in os.environ["BENCH_INPUT"].split(","):
    frame = app.dataframe(app.topic(name, value_deserializer="json", key_deserializer="bytes"))
    frame.apply(count, stateful=True).to_topic(output)

if __name__ == "__main__":
    app.run()
