"""Which partitions are to be moved or elected, and onto which brokers, as people and Kafka's own tools write it.

Invariant: a plan names every partition once, and no broker twice for one partition; whatever breaks
that is a UsageError (exit code 2) that says where. Whether topics and brokers exist is the cluster's to judge.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from minikafka.base.model import BrokerId, TopicPartition

Plan: TypeAlias = dict[TopicPartition, tuple[BrokerId, ...]]
"""Partition to the replicas it shall have, the preferred one first."""
FILE_VERSION: Final = 1
_PARTITION_MAX: Final = 2**31 - 1


def broker_list(text: str) -> tuple[BrokerId, ...]:
    """`3,4,5` as brokers. Raises UsageError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(_is_number(part) for part in parts):
        raise click.UsageError(f"{text!r}: brokers are written as 1,2,3")
    return _distinct(tuple(map(int, parts)), text)


def given_partitions(topics: Sequence[str], partitions: Sequence[int]) -> list[TopicPartition]:
    """What repeated `--topic` and `--partition` name: pairs in order, or several of one topic."""
    if len(topics) == 1:
        topics = [topics[0]] * len(partitions)
    if len(topics) != len(partitions):
        raise click.UsageError("give --topic once, or once for each --partition")
    return _once([TopicPartition(*pair) for pair in zip(topics, partitions, strict=True)])


def given_plan(topics: Sequence[str], partitions: Sequence[int], replicas: Sequence[str]) -> Plan:
    """`--topic t --partition 0 --replicas 3,4,5`, once or more."""
    wanted = given_partitions(topics, partitions)
    if len(replicas) != len(wanted):
        raise click.UsageError("give --replicas once for each --partition")
    return dict(zip(wanted, map(broker_list, replicas), strict=True))


def plan_file(file: str) -> Plan:
    """A plan in the JSON of Kafka's reassignment tool. Raises UsageError and OSError."""
    plan: Plan = {}
    for at, entry in enumerate(_entries(file)):
        where = f"{file}: partitions[{at}]"
        tp = _partition(entry, where)
        replicas = entry.get("replicas")
        if not isinstance(replicas, list) or not replicas or not all(map(_is_id, replicas)):
            raise click.UsageError(f"{where}: replicas must be a list of broker ids, as [1, 2, 3]")
        if any(directory != "any" for directory in entry.get("log_dirs") or ()):
            raise click.UsageError(f'{where}: log_dirs can only be "any": brokers choose')
        if tp in plan:
            raise click.UsageError(f"{where}: {tp} is there twice")
        plan[tp] = _distinct(tuple(replicas), f"{where}: {replicas}")
    return plan


def partitions_file(file: str) -> list[TopicPartition]:
    """Partitions in the JSON of Kafka's election tool; replicas, if there, are passed over."""
    entries = enumerate(_entries(file))
    return _once([_partition(entry, f"{file}: partitions[{at}]") for at, entry in entries])


def as_json(plan: Mapping[TopicPartition, Sequence[BrokerId]]) -> dict[str, Any]:
    """The plan as Kafka's reassignment tool reads and writes it."""
    partitions = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "replicas": list(replicas),
            "log_dirs": ["any"] * len(replicas),
        }
        for tp, replicas in sorted(plan.items())
    ]
    return {"version": FILE_VERSION, "partitions": partitions}


def as_text(plan: Mapping[TopicPartition, Sequence[BrokerId]]) -> str:
    """The plan on one line, as Kafka's tool prints it."""
    return json.dumps(as_json(plan), separators=(",", ":"))


def manual_assignment(text: str) -> dict[int, tuple[BrokerId, ...]]:
    """`1:2:3,2:3:1` as Kafka's topic tool has it: replicas by colons, partitions by commas."""
    assignment = {}
    for number, part in enumerate(text.split(",")):
        ids = [broker.strip() for broker in part.split(":")]
        if not all(map(_is_number, ids)):
            raise click.UsageError(
                f"--replica-assignment {text!r}: write brokers as 1:2:3,2:3:1, a group per partition"
            )
        assignment[number] = _distinct(tuple(map(int, ids)), f"partition {number}: {part}")
    return assignment


def _entries(file: str) -> list[dict[str, Any]]:
    shape = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2,3]}]}'
    try:
        content = json.loads(Path(file).read_text())
    except ValueError as error:
        raise click.UsageError(f"{file}: not JSON: {error}") from error
    entries = content.get("partitions") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise click.UsageError(f"{file}: expected {shape}")
    if content.get("version", FILE_VERSION) != FILE_VERSION:
        raise click.UsageError(f"{file}: only version {FILE_VERSION} is known")
    if not entries:
        raise click.UsageError(f"{file}: there are no partitions in it")
    return entries


def _partition(entry: Mapping[str, Any], where: str) -> TopicPartition:
    topic, number = entry.get("topic"), entry.get("partition")
    if not isinstance(topic, str) or not topic:
        raise click.UsageError(f"{where}: topic must be a name")
    if not _is_id(number):
        raise click.UsageError(f"{where}: partition must be a number from 0 on")
    return TopicPartition(topic, number or 0)


def _is_id(value: object) -> bool:
    return type(value) is int and 0 <= value <= _PARTITION_MAX


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and int(text) <= _PARTITION_MAX


def _distinct(replicas: tuple[BrokerId, ...], where: str) -> tuple[BrokerId, ...]:
    if len(set(replicas)) < len(replicas):
        raise click.UsageError(f"{where}: a broker is named twice")
    return replicas


def _once(partitions: list[TopicPartition]) -> list[TopicPartition]:
    twice = [tp for tp, count in Counter(partitions).items() if count > 1]
    if twice:
        raise click.UsageError(f"{twice[0]} is named twice")
    return partitions
