"""How a command names one partition: TOPIC-PARTITION, or two options."""

from __future__ import annotations

import click

from minikafka.base.model import TopicPartition


def partition_named(text: str) -> TopicPartition:
    """`t-0` as Kafka writes it. Raises click.UsageError."""
    topic, _, number = text.rpartition("-")
    if not topic or not number.isdigit():
        raise click.UsageError(f"{text!r} names no partition: write TOPIC-PARTITION, as in t-0")
    return TopicPartition(topic, int(number))
