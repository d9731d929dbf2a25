"""Kafka's tools about partitions: leader election, offsets, deletion of records, log directories."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from minikafka.base.errors import ErrorCode, KafkaError, MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.client import Client, Outcome
from minikafka.client.administration.results import LogDir
from minikafka.client.log_offsets import EARLIEST, LATEST
from minikafka.tools.cli.arguments.placement import offsets_file, partitions_file
from minikafka.tools.cli.kafka_home.connection import connected, exception_text
from minikafka.tools.cli.kafka_home.options import Arguments
from minikafka.tools.cli.terminal.echo import echo

_TYPES: Final = ("preferred", "unclean")
_TIMES: Final = {"latest": LATEST, "earliest": EARLIEST, "-1": LATEST, "-2": EARLIEST}


def elect(arguments: Arguments) -> None:
    """`kafka-leader-election.sh`. Raises MinikafkaError."""
    kind = arguments.required("election-type").lower()
    if kind not in _TYPES:
        raise MinikafkaError(f"election-type must be one of {', '.join(_TYPES)}, got {kind}")
    where = ("topic", "all-topic-partitions", "path-to-json-file")
    chosen = arguments.only_one_of(where)
    partitions = None
    if chosen == "topic":
        number = arguments.number("partition")
        if number is None:
            raise MinikafkaError("Missing required option(s): partition")
        partitions = [TopicPartition(arguments.required("topic"), number)]
    elif chosen == "path-to-json-file":
        partitions = partitions_file(arguments.required("path-to-json-file"))
    elif arguments.has("partition"):
        raise MinikafkaError("Option partition is only allowed if topic is used")

    async def work(client: Client) -> Mapping[TopicPartition, Outcome]:
        return await client.admin.elect_leaders(partitions, unclean=kind == "unclean")

    _show_elections(kind.upper(), connected(arguments, work))


def _show_elections(kind: str, outcomes: Mapping[TopicPartition, Outcome]) -> None:
    elected = [str(tp) for tp, outcome in outcomes.items() if outcome.ok]
    needless = [
        str(tp) for tp, one in outcomes.items() if one.code is ErrorCode.ELECTION_NOT_NEEDED
    ]
    if elected:
        echo(f"Successfully completed leader election ({kind}) for partitions {', '.join(elected)}")
    if needless:
        echo(f"Valid replica already elected for partitions {', '.join(needless)}")
    wrong = {
        tp: one
        for tp, one in outcomes.items()
        if not one.ok and one.code is not ErrorCode.ELECTION_NOT_NEEDED
    }
    for tp, one in wrong.items():
        reason = exception_text(one.code, one.reason)
        echo(f"Error completing leader election ({kind}) for partition: {tp}: {reason}")
    if wrong:
        raise MinikafkaError(f"{len(wrong)} replica(s) could not be elected")


def get_offsets(arguments: Arguments) -> None:
    """`kafka-get-offsets.sh`: one line TOPIC:PARTITION:OFFSET for each partition. Raises MinikafkaError."""
    if arguments.has("topic-partitions") and (
        arguments.has("topic") or arguments.has("partitions")
    ):
        raise MinikafkaError("--topic-partitions cannot be used with --topic or --partitions")
    time = arguments.value("time", "latest") or ""
    at = _TIMES.get(time) if not time.lstrip("-").isdecimal() else int(time)
    if at is None or at < EARLIEST:
        raise MinikafkaError(
            f"Malformed time argument {time}. Please use -1 or latest / -2 or earliest, or a timestamp"
        )
    wanted = at

    async def work(client: Client) -> None:
        _, topics = await client.admin.describe(None)
        partitions = sorted(
            TopicPartition(topic.name, number)
            for topic in topics
            for number, one in topic.partitions.items()
            if not (topic.is_internal and arguments.has("exclude-internal-topics"))
            and _is_asked(arguments, topic.name, number)
            and one.leader >= 0
        )
        if not partitions:
            raise MinikafkaError("Could not match any topic-partitions with the specified filters")
        found = await client.log_offsets(dict.fromkeys(partitions, wanted))
        for tp in partitions:
            if found[tp] >= 0:
                echo(f"{tp.topic}:{tp.partition}:{found[tp]}")

    connected(arguments, work)


def _is_asked(arguments: Arguments, topic: str, number: int) -> bool:
    """True if a partition matches the options --topic, --partitions and --topic-partitions."""
    if rules := arguments.words_of("topic-partitions"):
        return any(_matches(rule, topic, number) for rule in rules)
    pattern = arguments.value("topic")
    if pattern is not None and not re.fullmatch(pattern.replace(",", "|"), topic):
        return False
    numbers = arguments.words_of("partitions")
    if not all(text.isdecimal() for text in numbers):
        raise MinikafkaError("--partitions expects a comma separated list of numeric partition ids")
    return not numbers or str(number) in numbers


def _matches(rule: str, topic: str, number: int) -> bool:
    """True if a partition matches a rule TOPIC:N, TOPIC:N-M, TOPIC:N-, TOPIC:-M, TOPIC or :N."""
    match = re.fullmatch(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?", rule)
    if match is None:
        raise MinikafkaError(f"Invalid rule specification: {rule}")
    name, one, low, high = match.groups()
    if name and not re.fullmatch(name, topic):
        return False
    if one:
        return number == int(one)
    return int(low or 0) <= number and (not high or number < int(high))


def delete_records(arguments: Arguments) -> None:
    """`kafka-delete-records.sh`. Raises MinikafkaError."""
    before = offsets_file(arguments.required("offset-json-file"))

    async def work(client: Client) -> None:
        echo("Executing records delete operation")
        results = await client.admin.delete_records(before)
        echo("Records delete operation completed:")
        for tp, result in results.items():
            if result.outcome.ok:
                echo(f"partition: {tp}\tlow_watermark: {result.low_watermark}")
            else:
                reason = exception_text(result.outcome.code, result.outcome.reason)
                echo(f"partition: {tp}\terror: {reason}")

    connected(arguments, work)


def log_dirs(arguments: Arguments) -> None:
    """`kafka-log-dirs.sh --describe`: one line of JSON. Raises MinikafkaError."""
    if not arguments.has("describe"):
        raise MinikafkaError("Command must include exactly one action: --describe")
    topics, asked = set(arguments.words_of("topic-list")), arguments.words_of("broker-list")

    async def work(client: Client) -> None:
        alive = (await client.describe_cluster()).brokers
        brokers = [int(word) for word in asked if word.isdecimal()] if asked else sorted(alive)
        if missing := [broker for broker in brokers if broker not in alive]:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"The given brokers do not exist from --broker-list: {','.join(map(str, missing))}",
            )
        echo("Querying brokers for log directories information")
        found = await client.admin.describe_log_dirs(brokers=brokers)
        names = ",".join(map(str, found))
        echo(f"Received log directory information from brokers {names}")
        listed = [
            {"broker": broker, "logDirs": [_log_dir(one, topics) for one in directories]}
            for broker, directories in found.items()
        ]
        echo(json.dumps({"brokers": listed, "version": 1}, separators=(",", ":")))

    connected(arguments, work)


def _log_dir(found: LogDir, topics: set[str]) -> dict[str, Any]:
    """Return the object of one directory; `topics`: empty for all."""
    error = None if found.outcome.ok else exception_text(found.outcome.code, found.outcome.reason)
    return {
        "partitions": [
            {
                "partition": str(replica.tp),
                "size": replica.size,
                "offsetLag": replica.offset_lag,
                "isFuture": replica.is_future,
            }
            for replica in found.replicas
            if not topics or replica.tp.topic in topics
        ],
        "error": error,
        "logDir": found.path,
    }
