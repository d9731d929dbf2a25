"""Parsing of partitions and replica placements, as options or as the JSON files of Kafka's own tools.

Invariant: a plan names each partition once and no broker twice for one partition; a violation is a
UsageError (exit code 2) that names the option or the entry of the file. Whether topics and brokers exist is
checked by the cluster.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from minikafka.base.config.keys import LONG_MAX
from minikafka.base.model import BrokerId, TopicPartition
from minikafka.base.names import parse_replica_directory, parse_topic, read_json

Plan: TypeAlias = dict[TopicPartition, tuple[BrokerId, ...]]
"""The target replicas of each partition, the preferred leader first."""
Directories: TypeAlias = Mapping[tuple[TopicPartition, BrokerId], str]
"""The log directories that a plan names, by partition and broker."""
FILE_VERSION: Final = 1
_ANY: Final = "any"
_PARTITION_MAX: Final = 2**31 - 1
_PLAN_SHAPE: Final = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2,3]}]}'
_OFFSETS_SHAPE: Final = '{"version":1,"partitions":[{"topic":"t","partition":0,"offset":100}]}'


def parse_partition(text: str) -> TopicPartition:
    """Parse TOPIC-PARTITION, for example `t-0`. Raises UsageError."""
    try:
        return parse_replica_directory(text)
    except ValueError:
        message = f"{text!r} is not a partition: write TOPIC-PARTITION, as in t-0"
        raise click.UsageError(message) from None


def broker_list(text: str) -> tuple[BrokerId, ...]:
    """Parse broker ids such as `3,4,5`. Raises UsageError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(_is_number(part) for part in parts):
        raise click.UsageError(f"{text!r} is not a list of broker ids: write 1,2,3")
    return _distinct(tuple(map(int, parts)), text)


def given_partitions(topics: Sequence[str], partitions: Sequence[int]) -> list[TopicPartition]:
    """Return the partitions that the options `--topic` and `--partition` name; both may be repeated.

    A single topic applies to every partition number. Several topics are paired with the numbers in order. Raises
    UsageError.
    """
    if len(topics) == 1:
        topics = [topics[0]] * len(partitions)
    if len(topics) != len(partitions):
        raise click.UsageError("give --topic once, or once for each --partition")
    return once([TopicPartition(*pair) for pair in zip(topics, partitions, strict=True)])


def given_plan(partitions: Sequence[TopicPartition], replicas: Sequence[str]) -> Plan:
    """Return the plan in which the Nth partition gets the replicas of the Nth `--replicas` option.

    Raises UsageError if there are not as many options as partitions.
    """
    if len(replicas) != len(partitions):
        raise click.UsageError("give --replicas once for each partition")
    return dict(zip(partitions, map(broker_list, replicas), strict=True))


def plan_file(file: str) -> Plan:
    """Read a plan in the JSON of Kafka's tool, or of `reassign --generate`. Raises UsageError and OSError."""
    plan: Plan = {}
    for at, entry in enumerate(_entries(file)):
        where = f"{file}: partitions[{at}]"
        tp = _partition(entry, where)
        replicas = entry.get("replicas")
        if not isinstance(replicas, list) or not replicas or not all(map(_is_id, replicas)):
            raise click.UsageError(
                f"{where}: replicas must be a list of broker ids, for example [1, 2, 3]"
            )
        _log_dirs(entry, where)
        if tp in plan:
            raise click.UsageError(f"{where}: {tp} is named twice")
        plan[tp] = _distinct(tuple(replicas), f"{where}: {replicas}")
    return plan


def directories_file(file: str) -> Directories:
    """Return the log directories that a plan names. Call `plan_file` first. Raises UsageError and OSError."""
    return {
        (_partition(entry, file), broker): path.rstrip("/") or "/"
        for entry in _entries(file)
        for broker, path in zip(entry["replicas"], _log_dirs(entry, file), strict=True)
        if path != _ANY
    }


def _log_dirs(entry: Mapping[str, Any], where: str) -> list[str]:
    """Return the log directory of each replica of an entry."""
    count = len(entry["replicas"])
    found = entry.get("log_dirs") or [_ANY] * count
    if (
        not isinstance(found, list)
        or len(found) != count
        or not all(isinstance(one, str) and (one == _ANY or one.startswith("/")) for one in found)
    ):
        raise click.UsageError(
            f'{where}: log_dirs must have "any" or the absolute path of a log directory for each replica'
        )
    return found


def partitions_file(file: str) -> list[TopicPartition]:
    """Read partitions in the JSON of Kafka's election tool; replicas in the file are ignored.

    Raises UsageError and OSError.
    """
    entries = enumerate(_entries(file))
    return once([_partition(entry, f"{file}: partitions[{at}]") for at, entry in entries])


def offsets_file(file: str) -> dict[TopicPartition, int]:
    """Return the offset of each partition in a JSON file for kafka-delete-records; -1 means the high watermark.

    Raises UsageError and OSError.
    """
    offsets: dict[TopicPartition, int] = {}
    for at, entry in enumerate(_entries(file, _OFFSETS_SHAPE)):
        where = f"{file}: partitions[{at}]"
        tp, offset = _partition(entry, where), entry.get("offset")
        if type(offset) is not int or not -1 <= offset <= LONG_MAX:
            raise click.UsageError(
                f"{where}: offset must be a number, or -1 for the high watermark"
            )
        if tp in offsets:
            raise click.UsageError(f"{where}: {tp} is named twice")
        offsets[tp] = offset
    return offsets


def as_json(
    plan: Mapping[TopicPartition, Sequence[BrokerId]], directories: Directories | None = None
) -> dict[str, Any]:
    """Return the plan as the JSON object of Kafka's reassignment tool."""
    paths = directories or {}
    partitions = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "replicas": list(replicas),
            "log_dirs": [paths.get((tp, broker), _ANY) for broker in replicas],
        }
        for tp, replicas in sorted(plan.items())
    ]
    return {"version": FILE_VERSION, "partitions": partitions}


def as_text(
    plan: Mapping[TopicPartition, Sequence[BrokerId]], directories: Directories | None = None
) -> str:
    """Return the plan as one line of JSON, as Kafka's tool prints it."""
    return json.dumps(as_json(plan, directories), separators=(",", ":"))


def manual_assignment(text: str) -> dict[int, tuple[BrokerId, ...]]:
    """Parse replicas such as `1:2:3,2:3:1`: brokers joined by colons, partitions by commas.

    Return broker ids by partition number. Raises UsageError.
    """
    assignment = {}
    for number, part in enumerate(text.split(",")):
        ids = [broker.strip() for broker in part.split(":")]
        if not all(map(_is_number, ids)):
            raise click.UsageError(
                f"--replica-assignment {text!r}: write brokers as 1:2:3,2:3:1, one group per partition"
            )
        assignment[number] = _distinct(tuple(map(int, ids)), f"partition {number}: {part}")
    return assignment


def once(partitions: list[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions unchanged. Raises UsageError if a partition is named twice."""
    twice = [tp for tp, count in Counter(partitions).items() if count > 1]
    if twice:
        raise click.UsageError(f"{twice[0]} is named twice")
    return partitions


def _entries(file: str, shape: str = _PLAN_SHAPE) -> list[dict[str, Any]]:
    try:
        content = read_json(Path(file).read_bytes())
    except ValueError as error:
        raise click.UsageError(f"{file}: {error}") from error
    if isinstance(content, dict):
        content = content.get("proposed", content)
    entries = content.get("partitions") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise click.UsageError(f"{file}: expected {shape}")
    if content.get("version", FILE_VERSION) != FILE_VERSION:
        raise click.UsageError(f"{file}: version must be {FILE_VERSION}")
    if not entries:
        raise click.UsageError(f"{file}: its list of partitions is empty")
    return entries


def _partition(entry: Mapping[str, Any], where: str) -> TopicPartition:
    number = entry.get("partition")
    try:
        topic = parse_topic(entry.get("topic"))
    except ValueError as error:
        raise click.UsageError(f"{where}: topic: {error}") from error
    if not _is_id(number):
        raise click.UsageError(f"{where}: partition must be a number, at least 0")
    return TopicPartition(topic, number or 0)


def _is_id(value: object) -> bool:
    return type(value) is int and 0 <= value <= _PARTITION_MAX


def _is_number(text: str) -> bool:
    is_short = text.isascii() and text.isdecimal() and len(text) <= len(str(_PARTITION_MAX))
    return is_short and int(text) <= _PARTITION_MAX


def _distinct(replicas: tuple[BrokerId, ...], where: str) -> tuple[BrokerId, ...]:
    if len(set(replicas)) < len(replicas):
        raise click.UsageError(f"{where}: a broker is named twice")
    return replicas
