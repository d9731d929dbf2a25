"""Arguments that name partitions, the same in every command: TOPIC-PARTITION, or `--topic T --partition N`.

This module imports nothing heavy: every `--help` loads it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final, NamedTuple

import click

import minikafka.client as clients
from minikafka.base.model import TopicPartition
from minikafka.tools.cli.arguments import completion
from minikafka.tools.cli.arguments.placement import given_partitions, once, parse_partition
from minikafka.tools.cli.terminal.topic_errors import unknown_topics

_TOGETHER: Final = "name partitions as TOPIC-PARTITION, or by --topic and --partition, not both"

_ONE: Final = "name a partition, TOPIC-PARTITION or --topic T --partition N"
_ONE_OR_GROUP: Final = f"{_ONE}, or a group, --group G"

topic_of_partition = click.option(
    "-t",
    "--topic",
    metavar="TOPIC",
    help="Topic of the partition.",
    shell_complete=completion.topics,
)
number_of_partition = click.option(
    "-p", "--partition", type=click.IntRange(0), metavar="N", help="Its number."
)


class Named(NamedTuple):
    """The partitions that a command line names: single partitions, all partitions of topics, or none."""

    partitions: tuple[TopicPartition, ...]
    topics: tuple[str, ...]


def partition_or_group(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command with TOPIC-PARTITION (or `-t TOPIC -p N`) and `--group G`.

    The user must give either a partition or a group. The partition is passed as `tp`, the group as `group`; the
    argument that was not given is None.
    """

    @click.argument(
        "named", metavar="[TOPIC-PARTITION]", required=False, shell_complete=completion.partitions
    )
    @topic_of_partition
    @number_of_partition
    @click.option(
        "--group",
        metavar="GROUP",
        help="A consumer group instead of a partition.",
        shell_complete=completion.groups,
    )
    @wraps(command)
    def with_partition(
        named: str | None,
        topic: str | None,
        partition: int | None,
        group: str | None,
        **rest: object,
    ) -> None:
        is_named = named is not None or topic is not None or partition is not None
        if is_named and group is not None:
            raise click.UsageError("name a partition or a --group, not both")
        tp = None if group is not None else _partition(named, topic, partition, _ONE_OR_GROUP)
        command(tp=tp, group=group, **rest)

    return with_partition


def partition_argument(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command with TOPIC-PARTITION (or `-t TOPIC -p N`), which is passed as `tp`."""

    @click.argument(
        "named", metavar="[TOPIC-PARTITION]", required=False, shell_complete=completion.partitions
    )
    @topic_of_partition
    @number_of_partition
    @wraps(command)
    def with_partition(
        named: str | None, topic: str | None, partition: int | None, **rest: object
    ) -> None:
        command(tp=_partition(named, topic, partition, _ONE), **rest)

    return with_partition


def _partition(
    named: str | None, topic: str | None, number: int | None, needed: str
) -> TopicPartition:
    """Return the partition that the arguments name. Raises UsageError, with the text `needed` if they name none."""
    if named is not None:
        if topic is not None or number is not None:
            raise click.UsageError(_TOGETHER)
        return parse_partition(named)
    if topic is None or number is None:
        raise click.UsageError(needed)
    return TopicPartition(topic, number)


def partitions_argument(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command with TOPIC-PARTITION… and the options `-t TOPIC` and `-p N`, passed as `named`.

    `-t TOPIC` without `-p` means all partitions of the topic.
    """

    @click.argument(
        "words", nargs=-1, metavar="[TOPIC-PARTITION]...", shell_complete=completion.partitions
    )
    @click.option(
        "-t",
        "--topic",
        "topics",
        multiple=True,
        metavar="TOPIC",
        help="Topic of the --partition; without --partition, all its partitions. May be repeated.",
        shell_complete=completion.topics,
    )
    @click.option(
        "-p",
        "--partition",
        "numbers",
        type=click.IntRange(0),
        multiple=True,
        metavar="N",
        help="Partition of the --topic; may be repeated.",
    )
    @wraps(command)
    def with_partitions(
        words: tuple[str, ...], topics: tuple[str, ...], numbers: tuple[int, ...], **rest: object
    ) -> None:
        command(named=read_named(words, topics, numbers), **rest)

    return with_partitions


def read_named(words: tuple[str, ...], topics: tuple[str, ...], numbers: tuple[int, ...]) -> Named:
    """Return the partitions or topics that these arguments name. Raises UsageError."""
    if words and (topics or numbers):
        raise click.UsageError(_TOGETHER)
    if words:
        return Named(tuple(once([parse_partition(word) for word in words])), ())
    if numbers and not topics:
        raise click.UsageError("--partition needs --topic")
    if numbers:
        return Named(tuple(given_partitions(topics, numbers)), ())
    return Named((), topics)


async def partitions_of(admin: clients.Admin, topics: tuple[str, ...]) -> list[TopicPartition]:
    """Return all partitions of these topics. Raises KafkaError(UNKNOWN_TOPIC_OR_PARTITION)."""
    known = await admin.describe_topics(topics)
    missing = [name for name in topics if name not in known]
    if missing:
        raise unknown_topics(missing)
    return [
        TopicPartition(name, number)
        for name, info in known.items()
        for number in sorted(info.partitions)
    ]
