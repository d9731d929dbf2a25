"""Idempotent producers: their ids, and their state in partitions (KIP-98, KIP-360).

InitProducerId 22, versions 0–5.
- Without a transactional id: a unique producer id with epoch 0, from any broker. A producer that sends its old id
  and epoch (from version 3) gets a new id: its sequence numbers restart at 0, and its unacknowledged batches
  cannot be mistaken for batches of the new id.
- With a transactional id: INVALID_REQUEST, because transactions are not supported yet. librdkafka would repeat the
  request after this error, so it gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED instead.
- If ZooKeeper is not reachable: COORDINATOR_NOT_AVAILABLE, which producers retry.
Deliberately ignored: the transaction timeout, which clients send as -1, 0 or the largest int.

DescribeProducers 61, version 0.
- Returns the producer state of a replica, which may be a leader or a follower (KIP-664), with the start of an open
  transaction. A partition without a replica on this broker gets NOT_LEADER_OR_FOLLOWER or
  UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from minikafka.base.errors import CoordinationError, ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.broker.coordinators.transactional_ids import refusal_code
from minikafka.broker.requests.services import Entity, Handler, RequestContext, Services, Steps
from minikafka.log.state.producers import ActiveProducer
from minikafka.wire.codec import response
from minikafka.wire.in_steps import response_in_steps
from minikafka.wire.versions import DESCRIBE_PRODUCERS, INIT_PRODUCER_ID

logger = logging.getLogger(__name__)

_NONE: Final = -1
"""Value of both id and epoch in the InitProducerId request of a producer that has no id yet."""


async def init_producer_id(services: Services, request: Entity, context: RequestContext) -> Entity:
    """Return the response to an InitProducerId request."""
    if request.transactional_id is not None:
        peer = context.connection.peer
        services.transactional.note(request.transactional_id, context.client_id, peer)
        return _refused(context.version, refusal_code(context.connection.software))
    old_id, old_epoch = (
        getattr(request, "producer_id", _NONE),
        getattr(request, "producer_epoch", _NONE),
    )
    if (old_id == _NONE) != (old_epoch == _NONE):
        return _refused(context.version, ErrorCode.INVALID_REQUEST)
    try:
        producer_id = await services.producer_ids.next()
    except (CoordinationError, ValueError) as error:
        logger.warning("cannot allocate a producer id: %s: %s", type(error).__name__, error)
        return _refused(context.version, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return response(INIT_PRODUCER_ID, context.version, producer_id=producer_id, producer_epoch=0)


def _refused(version: int, code: ErrorCode) -> Entity:
    return response(INIT_PRODUCER_ID, version, error_code=code, producer_id=-1, producer_epoch=-1)


def describe_producers(services: Services, request: Entity, context: RequestContext) -> Steps:
    """Return the response to a DescribeProducers request as `Steps`."""
    return response_in_steps(
        DESCRIBE_PRODUCERS,
        context.version,
        topics=(
            {
                "name": topic.name,
                "partitions": (
                    _described(services, TopicPartition(topic.name, number))
                    for number in topic.partition_indexes
                ),
            }
            for topic in request.topics
        ),
    )


def _described(services: Services, tp: TopicPartition) -> dict[str, Any]:
    partition = services.replicas.partition(tp)
    if partition is None or partition.offline:
        return {"partition_index": tp.partition, "error_code": services.replicas.error_for(tp)}
    producers = partition.log.producers.active()
    return {"partition_index": tp.partition, "active_producers": map(_producer, producers)}


def _producer(producer: ActiveProducer) -> dict[str, Any]:
    return {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "last_sequence": producer.last_sequence,
        "last_timestamp": producer.last_timestamp,
        "coordinator_epoch": producer.coordinator_epoch,
        "current_txn_start_offset": producer.transaction_start,
    }


HANDLERS: Final[dict[int, Handler]] = {
    INIT_PRODUCER_ID: init_producer_id,
    DESCRIBE_PRODUCERS: describe_producers,
}
