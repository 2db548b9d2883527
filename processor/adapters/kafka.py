"""The log on Apache Kafka: what the rest of the processor imports."""

from __future__ import annotations

from processor.adapters.kafka_input import KafkaInput
from processor.adapters.kafka_output import KafkaOutput
from processor.adapters.kafka_reader import KafkaReader

__all__ = ["KafkaInput", "KafkaOutput", "KafkaReader"]
