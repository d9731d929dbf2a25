"""Idempotent producers: their ids, and their state in partitions (KIP-98, KIP-360).

InitProducerId 22, versions 0–5.
- Without a transactional id: a unique producer id with epoch 0, from any broker. A producer that sends its old id
  and epoch (from version 3) gets a new id: its sequence numbers restart at 0, and its unacknowledged batches
  cannot be mistaken for batches of the new id.
- With a transactional id, from the id's coordinator: the id's producer id with the next epoch, which fences earlier
  producers of this transactional id. An open transaction is aborted first: until then, the producer gets
  CONCURRENT_TRANSACTIONS, which it retries. A timeout above `transaction.max.timeout.ms` gets
  INVALID_TRANSACTION_TIMEOUT. Before version 4, INVALID_PRODUCER_EPOCH stands for PRODUCER_FENCED.
- If ZooKeeper is not reachable: COORDINATOR_NOT_AVAILABLE, which producers retry.
Deliberately ignored: the transaction timeout without a transactional id: clients send -1, 0 or the largest int.

DescribeProducers 61, version 0.
- Returns the producer state of a replica, which may be a leader or a follower (KIP-664), with the start of an open
  transaction. A partition without a replica on this broker gets NOT_LEADER_OR_FOLLOWER or
  UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from collections.abc import Awaitable, Container
from typing import Any, Final

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.broker.admin.names import name_error
from minikafka.broker.services import (
    LATER,
    Entity,
    Handler,
    Later,
    RequestContext,
    Services,
    Steps,
)
from minikafka.deciders.transactions.commands import InitProducerIdResponse
from minikafka.deciders.transactions.events import InitProducerIdRequest
from minikafka.deciders.transactions.states import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from minikafka.kafka.wire.codec import response, response_in_steps
from minikafka.kafka.wire.versions import DESCRIBE_PRODUCERS, INIT_PRODUCER_ID
from minikafka.security.operations import (
    CLUSTER,
    IDEMPOTENT_WRITE,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    need,
)
from minikafka.storage.log.producers import ActiveProducer

_TRANSACTIONAL: Final = need("InitProducerId", WRITE, TRANSACTIONAL_ID)
_IDEMPOTENT: Final = need("InitProducerId", IDEMPOTENT_WRITE, CLUSTER)
_WRITE_ANY: Final = need("InitProducerId", WRITE, TOPIC)
_READ: Final = need("DescribeProducers", READ, TOPIC)
_FENCED_SINCE: Final = 4


def init_producer_id(
    services: Services, request: Entity, context: RequestContext
) -> bytes | Later | Awaitable[bytes]:
    """Handle an InitProducerId request."""
    old_id, old_epoch = request.producer_id, request.producer_epoch
    if code := _denied(services, request.transactional_id, context):
        return _refused(context.version, code)
    if (old_id == NO_PRODUCER_ID) != (old_epoch == NO_PRODUCER_EPOCH):
        return _refused(context.version, ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        return _new_producer_id(services, context)
    services.transactions.handle(
        InitProducerIdRequest(
            request.transactional_id,
            request.transaction_timeout_ms,
            old_id,
            old_epoch,
            caller=context.answer_with(_initialized),
        )
    )
    return LATER


def _denied(
    services: Services, transactional_id: str | None, context: RequestContext
) -> ErrorCode | None:
    """Return the error code if the client may not get a producer id, else None."""
    access, client = services.access, context.connection
    if transactional_id is not None:
        is_allowed = access.allows(client, _TRANSACTIONAL, transactional_id)
        return None if is_allowed else _TRANSACTIONAL.error
    if access.allows(client, _IDEMPOTENT) or access.allows_any(client, _WRITE_ANY):
        return None
    return _IDEMPOTENT.error


async def _new_producer_id(services: Services, context: RequestContext) -> bytes:
    producer_id = await services.producer_ids.allocate()
    if isinstance(producer_id, ErrorCode):
        return _refused(context.version, producer_id)
    return response(INIT_PRODUCER_ID, context.version, producer_id=producer_id, producer_epoch=0)


def _initialized(version: int, outcome: InitProducerIdResponse) -> bytes:
    error, producer_id, epoch = outcome
    if version < _FENCED_SINCE and error == ErrorCode.PRODUCER_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return response(
        INIT_PRODUCER_ID,
        version,
        error_code=error,
        producer_id=producer_id,
        producer_epoch=epoch,
    )


def _refused(version: int, code: ErrorCode) -> bytes:
    return response(INIT_PRODUCER_ID, version, error_code=code, producer_id=-1, producer_epoch=-1)


def describe_producers(services: Services, request: Entity, context: RequestContext) -> Steps:
    """Return the response to a DescribeProducers request as `Steps`."""
    allowed = services.access.allowed(context.connection, _READ)
    return response_in_steps(
        DESCRIBE_PRODUCERS,
        context.version,
        topics=(
            {
                "name": topic.name,
                "partitions": (
                    _described(services, TopicPartition(topic.name, number), allowed)
                    for number in topic.partition_indexes
                ),
            }
            for topic in request.topics
        ),
    )


def _described(services: Services, tp: TopicPartition, allowed: Container[str]) -> dict[str, Any]:
    if name_error(tp.topic):
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
        return {"partition_index": tp.partition, "error_code": code}
    if tp.topic not in allowed:
        return {
            "partition_index": tp.partition,
            "error_code": _READ.error,
            "error_message": _READ.message,
        }
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
