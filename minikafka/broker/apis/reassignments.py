"""Moving replicas between brokers (KIP-455); only the active controller does it.

AlterPartitionReassignments 45, version 0.
- Target replicas of each partition, null to cancel; a later request replaces an earlier one. The response is sent
  when the reassignment is written, with one code and message per partition: INVALID_REPLICA_ASSIGNMENT,
  NO_REASSIGNMENT_IN_PROGRESS, UNKNOWN_TOPIC_OR_PARTITION. A partition named twice is INVALID_REQUEST.
Deliberately ignored: the timeout.

ListPartitionReassignments 46, version 0.
- The partitions that are being reassigned, among the requested ones or all.

Other brokers return NOT_CONTROLLER, and clients find the controller with Metadata.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, Final

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import BrokerId, PartitionResult, ReplicaAssignment, TopicPartition
from minikafka.broker.services import Entity, Handler, RequestContext, Services, Steps
from minikafka.wire.in_steps import response_in_steps
from minikafka.wire.versions import ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS

Targets = dict[TopicPartition, tuple[BrokerId, ...] | None]


async def alter_partition_reassignments(
    services: Services, request: Entity, context: RequestContext
) -> Steps:
    """Return the steps to the response to an AlterPartitionReassignments request."""
    asked = [
        (TopicPartition(topic.name, entry.partition_index), entry.replicas)
        for topic in request.topics
        for entry in topic.partitions
    ]
    counts = Counter(tp for tp, _ in asked)
    targets: Targets = {
        tp: None if replicas is None else tuple(replicas)
        for tp, replicas in asked
        if counts[tp] == 1
    }
    try:
        results = await services.controller.alter_reassignments(targets)
    except KafkaError as error:
        return response_in_steps(
            ALTER_PARTITION_REASSIGNMENTS,
            context.version,
            error_code=error.code,
            error_message=error.detail or "this broker is not the controller",
        )
    twice = PartitionResult(ErrorCode.INVALID_REQUEST, "The partition is given twice.")
    results |= {tp: twice for tp, count in counts.items() if count > 1}
    return response_in_steps(
        ALTER_PARTITION_REASSIGNMENTS,
        context.version,
        responses=(
            {
                "name": topic,
                "partitions": map(_altered, partitions, map(results.__getitem__, partitions)),
            }
            for topic, partitions in _by_topic(counts).items()
        ),
    )


def _altered(tp: TopicPartition, result: PartitionResult) -> dict[str, Any]:
    return {
        "partition_index": tp.partition,
        "error_code": result.code,
        "error_message": result.message or None,
    }


def list_partition_reassignments(
    services: Services, request: Entity, context: RequestContext
) -> Steps:
    """Return the steps to the response to a ListPartitionReassignments request."""
    try:
        reassignments = services.controller.reassignments()
    except KafkaError as error:
        return response_in_steps(
            LIST_PARTITION_REASSIGNMENTS,
            context.version,
            error_code=error.code,
            error_message=error.detail or "this broker is not the controller",
        )
    shown: Iterable[TopicPartition] = sorted(reassignments)
    if request.topics is not None:
        names = {tp.topic for tp in reassignments}
        asked = {
            TopicPartition(topic.name, partition)
            for topic in request.topics
            if topic.name in names
            for partition in topic.partition_indexes
        }
        shown = [tp for tp in shown if tp in asked]
    return response_in_steps(
        LIST_PARTITION_REASSIGNMENTS,
        context.version,
        topics=(
            {
                "name": topic,
                "partitions": map(_listed, partitions, map(reassignments.__getitem__, partitions)),
            }
            for topic, partitions in _by_topic(shown).items()
        ),
    )


def _listed(tp: TopicPartition, assignment: ReplicaAssignment) -> dict[str, Any]:
    return {
        "partition_index": tp.partition,
        "replicas": assignment.replicas,
        "adding_replicas": assignment.adding,
        "removing_replicas": assignment.removing,
    }


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    by_topic: defaultdict[str, list[TopicPartition]] = defaultdict(list)
    for tp in partitions:
        by_topic[tp.topic].append(tp)
    return by_topic


HANDLERS: Final[dict[int, Handler]] = {
    ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments,
    LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments,
}
