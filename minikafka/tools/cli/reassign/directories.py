"""The log directories that a plan names (`log_dirs` in Kafka's JSON): ask for them, and wait.

A broker that does not host a replica yet remembers the directory, and creates the replica in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import BrokerId, TopicPartition
from minikafka.base.ports import Clock
from minikafka.client.administration.admin import Admin
from minikafka.tools.cli.arguments.placement import Directories
from minikafka.tools.cli.reassign.outcome import MoveResult, MoveState

_POLL_MS: Final = 500


async def ask(admin: Admin, directories: Directories) -> None:
    """Ask the brokers to move these replicas. Raises KafkaError if a broker refuses or does not answer."""
    by_broker: defaultdict[BrokerId, dict[TopicPartition, str]] = defaultdict(dict)
    for (tp, broker), path in directories.items():
        by_broker[broker][tp] = path
    for broker, paths in by_broker.items():
        try:
            outcomes = await admin.alter_log_dirs(broker, paths)
        except OSError as error:
            reason = f"broker {broker} does not answer: {error}"
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, reason) from None
        for tp, outcome in outcomes.items():
            if not outcome.ok and outcome.code != ErrorCode.REPLICA_NOT_AVAILABLE:
                raise KafkaError(outcome.code, f"{tp} on broker {broker}, directory {paths[tp]}")


async def until_moved(admin: Admin, directories: Directories, clock: Clock) -> None:
    """Wait until the replicas are in these directories."""
    while left := await missing(admin, directories):
        await ask(admin, left)
        await clock.sleep(_POLL_MS)


async def cancel(admin: Admin, directories: Directories) -> None:
    """Cancel the moves of replicas to these directories: ask for the directories in which they are."""
    await ask(admin, await _places(admin, await missing(admin, directories)))


async def missing(admin: Admin, directories: Directories) -> Directories:
    """Return the replicas that are not in their directories yet."""
    there = await _places(admin, directories)
    return {key: path for key, path in directories.items() if there.get(key) != path}


async def _places(admin: Admin, replicas: Directories) -> Directories:
    """Return the directory in which each of these replicas is; replicas that do not exist are left out."""
    if not replicas:
        return {}
    brokers = {broker for _, broker in replicas}
    found = await admin.describe_log_dirs({tp for tp, _ in replicas}, brokers)
    there = {
        (replica.tp, broker): directory.path
        for broker, entries in found.items()
        for directory in entries
        for replica in directory.replicas
        if not replica.is_future
    }
    return {key: there[key] for key in replicas if key in there}


async def with_directories(
    admin: Admin, results: Mapping[TopicPartition, MoveResult], directories: Directories
) -> dict[TopicPartition, MoveResult]:
    """Return the results; a partition whose replicas are not in their directories yet is still in progress."""
    named = {key: path for key, path in directories.items() if key[0] in results}
    waiting = {tp for tp, _ in await missing(admin, named)}
    return {
        tp: result._replace(state=MoveState.IN_PROGRESS)
        if tp in waiting and result.state is MoveState.COMPLETED
        else result
        for tp, result in results.items()
    }
