"""`kafka-reassign-partitions.sh`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from minikafka.base.errors import MinikafkaError
from minikafka.base.model import BrokerId, ReplicaAssignment, TopicPartition
from minikafka.base.names import ids
from minikafka.client import Client
from minikafka.client.administration.admin import Admin
from minikafka.tools.cli.arguments import placement
from minikafka.tools.cli.kafka_home.connection import connected, exception_text, failed
from minikafka.tools.cli.kafka_home.options import Arguments
from minikafka.tools.cli.reassign import throttle
from minikafka.tools.cli.reassign.jobs import Propose
from minikafka.tools.cli.reassign.outcome import SHORT_PATIENCE_MS, read_results
from minikafka.tools.cli.terminal.echo import echo

_ACTIONS: Final = ("generate", "execute", "verify", "cancel", "list")
_FILE: Final = "reassignment-json-file"
_OTHER_MOVES: Final = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create "
    "a new partition assignment in addition to the existing one. The --additional flag can also be used to change the "
    "throttle by resubmitting the current reassignment."
)
_VERIFY: Final = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is "
    "removed."
)


def run(arguments: Arguments) -> None:
    """Do the one action that the options name. Raises MinikafkaError."""
    action = arguments.only_one_of(_ACTIONS)
    if action == "generate":
        topics = _topics(arguments.required("topics-to-move-json-file"))
        brokers = placement.broker_list(arguments.required("broker-list"))
        connected(arguments, lambda client: Propose(topics, brokers).do(client.admin))
        return
    work = {"list": _list, "execute": _execute, "verify": _verify, "cancel": _cancel}
    if action != "list":
        arguments.required(_FILE)
    connected(arguments, lambda client: work[action](client, arguments))


def _topics(file: str) -> list[str]:
    """Return the topics of a file `{"topics": [{"topic": NAME}]}`. Raises MinikafkaError."""
    try:
        return [str(item["topic"]) for item in json.loads(Path(file).read_text("utf-8"))["topics"]]
    except OSError as error:
        raise MinikafkaError(f"{file}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        form = '{"version": 1, "topics": [{"topic": "NAME"}]}'
        raise MinikafkaError(f"{file} must have the form {form}") from None


async def _list(client: Client, _: Arguments) -> None:
    moves = sorted((await client.admin.list_reassignments()).items())
    if not moves:
        echo("No partition reassignments found.")
        return
    echo("Current partition reassignments:")
    for tp, move in moves:
        added = f" adding: {ids(move.adding)}." if move.adding else ""
        removed = f" removing: {ids(move.removing)}." if move.removing else ""
        echo(f"{tp}: replicas: {ids(move.replicas)}.{added}{removed}")


async def _execute(client: Client, arguments: Arguments) -> None:
    plan = placement.plan_file(arguments.required(_FILE))
    if placement.directories_file(arguments.required(_FILE)):
        raise MinikafkaError("log_dirs must be any: `minikafka reassign` moves between directories")
    admin = client.admin
    if await admin.list_reassignments() and not arguments.has("additional"):
        raise MinikafkaError(_OTHER_MOVES)
    await _check_brokers(client, plan)
    current = await _current(admin, plan)
    saved = "Save this to use as the --reassignment-json-file option during rollback"
    echo("Current partition replica assignment", "", placement.as_text(current), "", saved)
    rate = arguments.number("throttle", -1)
    if rate is not None and rate >= 0:
        echo(_VERIFY)
        await throttle.set_throttle(admin, plan, current, rate)
        echo(f"The inter-broker throttle limit was set to {rate} B/s")
    outcomes = await admin.alter_reassignments(plan)
    if wrong := failed(outcomes):
        texts = [f"{tp}: {exception_text(one.code, one.reason)}" for tp, one in wrong.items()]
        raise MinikafkaError(f"Error reassigning partition(s): {'; '.join(texts)}")
    echo(f"Successfully started partition reassignment{_plural(plan)} for {_names(plan)}")


async def _check_brokers(client: Client, plan: Mapping[TopicPartition, Sequence[BrokerId]]) -> None:
    alive = (await client.describe_cluster()).brokers
    for replicas in plan.values():
        for broker in replicas:
            if broker not in alive:
                raise MinikafkaError(f"Unknown broker id {broker}")


async def _current(admin: Admin, plan: Mapping[TopicPartition, object]) -> placement.Plan:
    """Return the replicas of the partitions of a plan. Raises MinikafkaError for a partition that does not exist."""
    _, topics = await admin.describe(sorted({tp.topic for tp in plan}))
    known = {
        TopicPartition(topic.name, number): one.replicas
        for topic in topics
        for number, one in topic.partitions.items()
    }
    if missing := [str(tp) for tp in plan if tp not in known]:
        raise MinikafkaError(
            f"Error reassigning partition(s): {', '.join(missing)}: no such partition"
        )
    return {tp: known[tp] for tp in plan}


def _plural(plan: Mapping[TopicPartition, object]) -> str:
    return "" if len(plan) == 1 else "s"


def _names(plan: Mapping[TopicPartition, object]) -> str:
    return ",".join(str(tp) for tp in sorted(plan))


async def _verify(client: Client, arguments: Arguments) -> None:
    plan = placement.plan_file(arguments.required(_FILE))
    results = await read_results(client.admin, plan, SHORT_PATIENCE_MS)
    echo("Status of partition reassignment:")
    for tp, result in sorted(results.items()):
        echo(result.sentence(tp))
    topics = {tp.topic for tp in plan}
    if arguments.has("preserve-throttles"):
        return
    if await throttle.remove_throttle(client.admin, topics):
        brokers = ",".join(map(str, sorted((await client.describe_cluster()).brokers)))
        echo("", f"Clearing broker-level throttles on brokers {brokers}")
        echo(f"Clearing topic-level throttles on topic {','.join(sorted(topics))}")


async def _cancel(client: Client, arguments: Arguments) -> None:
    plan = placement.plan_file(arguments.required(_FILE))
    moves: Mapping[TopicPartition, ReplicaAssignment] = await client.admin.list_reassignments(plan)
    if not moves:
        echo("None of the specified partition reassignments are active.")
        return
    outcomes = await client.admin.alter_reassignments(dict.fromkeys(moves))
    if wrong := failed(outcomes):
        texts = [f"{tp}: {exception_text(one.code, one.reason)}" for tp, one in wrong.items()]
        raise MinikafkaError(f"Error cancelling partition reassignment(s): {'; '.join(texts)}")
    echo(f"Successfully cancelled partition reassignment{_plural(moves)} for: {_names(moves)}")
    if not arguments.has("preserve-throttles"):
        await throttle.remove_throttle(client.admin, {tp.topic for tp in plan})
