"""`kafka-topics.sh`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from minikafka.base.errors import ErrorCode, MinikafkaError
from minikafka.client import Client, NewTopic, PartitionInfo, TopicInfo
from minikafka.client.administration.results import Resource, ResourceType
from minikafka.tools.cli.kafka_home.connection import connected, raise_first
from minikafka.tools.cli.kafka_home.options import Arguments
from minikafka.tools.cli.terminal.echo import echo
from minikafka.tools.cli.topics.describe import TopicsView, lines, read_topics, topic_id

_ACTIONS: Final = ("list", "describe", "create", "alter", "delete")
_COLLISION: Final = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both."
)
_FILTERS: Final = (
    "under-replicated-partitions",
    "unavailable-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
)
_NO_ELR: Final = "\tElr: N/A\tLastKnownElr: N/A"
_MIN_ISR: Final = "min.insync.replicas"


def run(arguments: Arguments) -> None:
    """Do the one action that the options name. Raises MinikafkaError."""
    action = arguments.only_one_of(_ACTIONS)
    if action in ("create", "alter"):
        arguments.required("topic")
    if action == "delete" and not (arguments.has("topic") or arguments.has("topic-id")):
        arguments.required("topic")
    work = {
        "list": _list,
        "describe": _describe,
        "create": _create,
        "alter": _alter,
        "delete": _delete,
    }
    connected(arguments, lambda client: work[action](client, arguments))


async def _list(client: Client, arguments: Arguments) -> None:
    for topic in await _chosen(client, arguments):
        echo(topic.name)


async def _chosen(client: Client, arguments: Arguments) -> list[TopicInfo]:
    """Return the topics that --topic, a pattern, --topic-id and --exclude-internal leave, by name."""
    _, topics = await client.admin.describe(None)
    pattern, uuid = arguments.value("topic"), arguments.value("topic-id")
    matches = _matcher(pattern)
    return [
        topic
        for topic in sorted(topics, key=lambda one: one.name)
        if (uuid is not None or matches(topic.name))
        and (uuid is None or topic_id(topic) == uuid)
        and not (topic.is_internal and arguments.has("exclude-internal"))
    ]


def _matcher(pattern: str | None) -> Callable[[str], bool]:
    """Return whether a name matches Kafka's pattern of topics: a regular expression, in which a comma is an `or`."""
    if pattern is None:
        return lambda name: True
    text = pattern.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        expression = re.compile(text)
    except re.error:
        raise MinikafkaError(f"{pattern} is an invalid regex.") from None
    return lambda name: expression.fullmatch(name) is not None


async def _existing(client: Client, arguments: Arguments) -> list[TopicInfo]:
    """Return the topics that are named. Raises MinikafkaError if there are none, unless --if-exists was given."""
    found = await _chosen(client, arguments)
    if not found and not arguments.has("if-exists"):
        if (uuid := arguments.value("topic-id")) is not None:
            raise MinikafkaError(f"TopicId '{uuid}' does not exist as expected")
        if (name := arguments.value("topic")) is not None:
            raise MinikafkaError(f"Topic '{name}' does not exist as expected")
    return found


async def _describe(client: Client, arguments: Arguments) -> None:
    found = await _existing(client, arguments)
    if not found:
        return
    view = await read_topics(client.admin, [topic.name for topic in found])
    is_filtered = any(map(arguments.has, _FILTERS))
    for topic in view.topics:
        if arguments.has("topics-with-overrides"):
            if view.configs.get(topic.name):
                echo(next(lines(topic, view, with_header=True)))
            continue
        keep = await _partition_filter(client, topic, view, arguments) if is_filtered else None
        for line in _described(topic, view, keep):
            echo(line)


def _described(
    topic: TopicInfo, view: TopicsView, keep: Callable[[PartitionInfo], bool] | None
) -> Iterator[str]:
    """Yield the lines of a topic; `keep`: only the partitions for which it is true, without a header."""
    if keep is not None:
        left = {number: one for number, one in topic.partitions.items() if keep(one)}
        topic = topic._replace(partitions=left)
    for line in lines(topic, view, with_header=keep is None):
        yield f"{line}{_NO_ELR}" if line.startswith("\t") else line


async def _partition_filter(
    client: Client, topic: TopicInfo, view: TopicsView, arguments: Arguments
) -> Callable[[PartitionInfo], bool]:
    cluster = await client.describe_cluster()
    resource = Resource(ResourceType.TOPIC, topic.name)
    settings = (await client.admin.describe_configs([resource]))[resource].entries
    minimum = int(next((one.value or "1" for one in settings if one.name == _MIN_ISR), "1"))
    tests: dict[str, Callable[[PartitionInfo], bool]] = {
        "under-replicated-partitions": lambda one: view.is_under_replicated(topic.name, one),
        "unavailable-partitions": lambda one: one.leader not in cluster.brokers,
        "under-min-isr-partitions": lambda one: one.leader < 0 or len(one.isr) < minimum,
        "at-min-isr-partitions": lambda one: len(one.isr) == minimum,
    }
    chosen = [test for name, test in tests.items() if arguments.has(name)]
    return lambda one: any(test(one) for test in chosen)


async def _create(client: Client, arguments: Arguments) -> None:
    name = arguments.required("topic")
    if "." in name or "_" in name:
        echo(_COLLISION)
    configs = dict(_config(text) for text in arguments.values("config"))
    replicas = _assignment(arguments.value("replica-assignment"))
    if replicas is not None and (
        arguments.has("partitions") or arguments.has("replication-factor")
    ):
        raise MinikafkaError(
            "--replica-assignment cannot be used with --partitions or --replication-factor"
        )
    count = arguments.number("partitions")
    factor = arguments.number("replication-factor")
    if count is not None and count < 1:
        raise MinikafkaError("The partitions must be greater than 0")
    if factor is not None and not 1 <= factor <= 32_767:
        raise MinikafkaError("The replication factor must be between 1 and 32767 inclusive")
    topic = NewTopic(name, count or -1, factor or -1, configs, replicas or {})
    outcome = (await client.admin.create_topics([topic]))[name]
    if outcome.code is ErrorCode.TOPIC_ALREADY_EXISTS and arguments.has("if-not-exists"):
        return
    raise_first([outcome])
    echo(f"Created topic {name}.")


def _config(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        all_ = 'all configs to be added must be in the format "key=val".'
        raise MinikafkaError(f"requirement failed: Invalid topic config: {all_}")
    return name.strip(), value.strip()


def _assignment(text: str | None) -> dict[int, list[int]] | None:
    """Return partition → replicas of `0:1,1:2`; None without the option. Raises MinikafkaError."""
    if text is None:
        return None
    try:
        lists = [[int(one) for one in part.strip().split(":")] for part in text.split(",")]
    except ValueError:
        raise MinikafkaError(f"--replica-assignment must be 0:1,1:2,…, got {text}") from None
    for number, one in enumerate(lists):
        if len(set(one)) < len(one):
            raise MinikafkaError(
                "Partition replica lists may not contain duplicate entries: " + text
            )
        if len(one) != len(lists[0]):
            raise MinikafkaError(f"Partition {number} has different replication factor: {text}")
    return dict(enumerate(lists))


async def _alter(client: Client, arguments: Arguments) -> None:
    found = await _existing(client, arguments)
    count = arguments.number("partitions")
    if count is None:
        raise MinikafkaError('Missing required argument "[partitions]"')
    replicas = _assignment(arguments.value("replica-assignment"))
    for topic in found:
        added = _added(replicas, len(topic.partitions)) if replicas is not None else None
        made = await client.admin.create_partitions(
            {topic.name: count}, {topic.name: added} if added is not None else None
        )
        raise_first(made.values())


def _added(replicas: dict[int, list[int]], count: int) -> Sequence[Sequence[int]]:
    """Return the replicas of the new partitions: Kafka's tool lists those of the old partitions too."""
    return [one for number, one in replicas.items() if number >= count]


async def _delete(client: Client, arguments: Arguments) -> None:
    names = [topic.name for topic in await _existing(client, arguments)]
    if names:
        raise_first((await client.admin.delete_topics(names)).values())
