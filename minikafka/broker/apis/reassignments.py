"""Moves of replicas between brokers (KIP-455). Only the active controller handles these requests.

AlterPartitionReassignments 45, version 0.
- Sets the target replicas of each partition. Null cancels a reassignment. A later request replaces an earlier one. The
  response is sent when the reassignment is written, with one code and message per partition:
  INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT_IN_PROGRESS, UNKNOWN_TOPIC_OR_PARTITION. A partition that is named twice
  gets INVALID_REQUEST, and a partition with more than 1,000 replicas gets INVALID_REPLICA_ASSIGNMENT. The broker does
  not log refusals.
Deliberately ignored: the timeout.

ListPartitionReassignments 46, version 0.
- Returns the requested partitions that are being reassigned. A null list requests all partitions.

Other brokers return NOT_CONTROLLER, and clients find the controller with Metadata.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from typing import Any, Final

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import BrokerId, PartitionResult, ReplicaAssignment, TopicPartition
from minikafka.broker.admin.names import may_exist
from minikafka.broker.services import Entity, Handler, RequestContext, Services, Steps
from minikafka.kafka.messages.steps import by_topic_in_steps
from minikafka.kafka.wire.codec import response_in_steps
from minikafka.kafka.wire.versions import (
    ALTER_PARTITION_REASSIGNMENTS,
    LIST_PARTITION_REASSIGNMENTS,
)
from minikafka.security.operations import ALTER, CLUSTER, DESCRIBE, need

_ALTER: Final = need("AlterPartitionReassignments", ALTER, CLUSTER)
_LIST: Final = need("ListPartitionReassignments", DESCRIBE, CLUSTER)
Targets = dict[TopicPartition, tuple[BrokerId, ...] | None]
REPLICAS_MAX: Final = 1_000
"""Maximum number of replicas that a request may assign to one partition: more than any cluster has. Without this
limit, a list of any length would be checked, and copied to the ledger and the response."""
_UNKNOWN: Final = PartitionResult(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."
)
_DENIED: Final = PartitionResult(_ALTER.error, _ALTER.message)
_TWICE: Final = PartitionResult(ErrorCode.INVALID_REQUEST, "The partition is given twice.")


async def alter_partition_reassignments(
    services: Services, request: Entity, context: RequestContext
) -> Steps:
    """Return the response to an AlterPartitionReassignments request as `Steps`."""
    is_allowed = services.access.allows(context.connection, _ALTER)
    asked = (
        (TopicPartition(topic.name, entry.partition_index), entry.replicas)
        for topic in request.topics
        for entry in topic.partitions
    )
    targets: Targets = {}
    refused: dict[TopicPartition, PartitionResult] = {}
    async for tp, replicas in services.pauses.each(asked):
        if tp in targets:
            refused[tp] = _TWICE
        elif not may_exist(tp.topic):
            refused[tp] = _UNKNOWN
        elif replicas is not None and len(replicas) > REPLICAS_MAX:
            refused[tp] = _too_many(len(replicas))
        targets[tp] = replicas
    if not is_allowed:
        return _answer(context.version, targets, dict.fromkeys(targets, _DENIED), _DENIED.code)
    try:
        results = await _alter(services, [tp for tp in targets if tp not in refused], targets)
    except KafkaError as error:
        return _refused(ALTER_PARTITION_REASSIGNMENTS, context.version, error)
    return _answer(context.version, targets, results | refused)


def _refused(api: int, version: int, error: KafkaError) -> Steps:
    return response_in_steps(api, version, error_code=error.code, error_message=error.detail)


def _too_many(replicas: int) -> PartitionResult:
    message = f"A partition has at most {REPLICAS_MAX} replicas, got {replicas}."
    return PartitionResult(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


async def _alter(
    services: Services, named: Sequence[TopicPartition], targets: Targets
) -> dict[TopicPartition, PartitionResult]:
    """Let the controller alter the reassignment of each partition in `named`; return the result of each partition.

    A long list is handled in parts, so that other requests are served between the parts. Raises KafkaError
    NOT_CONTROLLER.
    """
    results: dict[TopicPartition, PartitionResult] = {}
    async for part in services.pauses.parts(named):
        wanted = {tp: targets[tp] for tp in part}
        results |= await services.administration.alter_reassignments(wanted)
    return results


def _answer(
    version: int,
    named: Targets,
    results: Mapping[TopicPartition, PartitionResult],
    code: ErrorCode = ErrorCode.NONE,
) -> Steps:
    by_topic = yield from by_topic_in_steps(named)
    return (
        yield from response_in_steps(
            ALTER_PARTITION_REASSIGNMENTS,
            version,
            error_code=code,
            responses=(
                {
                    "name": topic,
                    "partitions": map(_altered, partitions, map(results.__getitem__, partitions)),
                }
                for topic, partitions in by_topic.items()
            ),
        )
    )


def _altered(tp: TopicPartition, result: PartitionResult) -> dict[str, Any]:
    return {
        "partition_index": tp.partition,
        "error_code": result.code,
        "error_message": result.message or None,
    }


async def list_partition_reassignments(
    services: Services, request: Entity, context: RequestContext
) -> Steps:
    """Return the response to a ListPartitionReassignments request as `Steps`."""
    try:
        services.access.check(context.connection, _LIST)
        reassignments = await services.administration.reassignments()
    except KafkaError as error:
        return _refused(LIST_PARTITION_REASSIGNMENTS, context.version, error)
    return _list(request, context, reassignments)


def _list(
    request: Entity,
    context: RequestContext,
    reassignments: Mapping[TopicPartition, ReplicaAssignment],
) -> Steps:
    shown = sorted(reassignments)
    if request.topics is not None:
        asked = yield from _asked(request, {tp.topic for tp in reassignments})
        shown = [tp for tp in shown if tp in asked]
    by_topic = yield from by_topic_in_steps(shown)
    return (
        yield from response_in_steps(
            LIST_PARTITION_REASSIGNMENTS,
            context.version,
            topics=(
                {
                    "name": topic,
                    "partitions": map(
                        _listed, partitions, map(reassignments.__getitem__, partitions)
                    ),
                }
                for topic, partitions in by_topic.items()
            ),
        )
    )


def _asked(request: Entity, topics: Collection[str]) -> Generator[None, None, set[TopicPartition]]:
    """Return the requested partitions whose topic is in `topics`. Yields after each topic of the request."""
    asked: set[TopicPartition] = set()
    for topic in request.topics:
        if topic.name in topics:
            asked.update(TopicPartition(topic.name, n) for n in topic.partition_indexes)
        yield
    return asked


def _listed(tp: TopicPartition, assignment: ReplicaAssignment) -> dict[str, Any]:
    return {
        "partition_index": tp.partition,
        "replicas": assignment.replicas,
        "adding_replicas": assignment.adding,
        "removing_replicas": assignment.removing,
    }


HANDLERS: Final[dict[int, Handler]] = {
    ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments,
    LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments,
}
