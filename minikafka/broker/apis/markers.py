"""Markers of transactions from administrators and from coordinators of other brokers (KIP-98, KIP-664).

WriteTxnMarkers 27, versions 0–1.
- Appends a marker to each partition, which ends the producer's transaction there. The response is sent when all
  markers are on all in-sync replicas. Markers that take longer than 30 s get REQUEST_TIMED_OUT.
- A partition without a replica on this broker gets UNKNOWN_TOPIC_OR_PARTITION. A follower answers
  NOT_LEADER_OR_FOLLOWER.
- A marker of an earlier producer epoch gets INVALID_PRODUCER_EPOCH. If the log has a marker of a later coordinator, the
  marker gets TRANSACTION_COORDINATOR_FENCED.
- The offsets that a transaction has committed in `__consumer_offsets` become visible with its marker there.
- As in Kafka, the response has one entry for each producer id, and a request with a negative producer id gets
  UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from typing import Final

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.broker.coordinators.markers import ANY_EPOCH
from minikafka.broker.requests.services import Entity, Handler, RequestContext, Services, Steps
from minikafka.rpc.transactions import Errors, MarkerRow
from minikafka.wire.in_steps import response_in_steps
from minikafka.wire.versions import WRITE_TXN_MARKERS

_WAIT_MS: Final = 30_000
"""Kafka's default of `request.timeout.ms`."""


async def write_txn_markers(services: Services, request: Entity, context: RequestContext) -> Steps:
    """Handle a WriteTxnMarkers request."""
    rows = [_row(marker) for marker in request.markers]
    errors: Errors
    if any(row.producer_id < 0 for row in rows):
        errors = [[ErrorCode.UNKNOWN_SERVER_ERROR] * len(row.partitions) for row in rows]
    else:
        errors = await services.marker_appends.write(rows, _WAIT_MS)
    results: dict[int, dict[str, dict[int, int]]] = {}
    for row, codes in zip(rows, errors, strict=True):
        topics = results.setdefault(row.producer_id, {})
        for (tp, _), code in zip(row.partitions, codes, strict=True):
            topics.setdefault(tp.topic, {})[tp.partition] = code
    return response_in_steps(
        WRITE_TXN_MARKERS,
        context.version,
        markers=(
            {
                "producer_id": producer_id,
                "topics": (
                    {
                        "name": topic,
                        "partitions": (
                            {"partition_index": number, "error_code": code}
                            for number, code in partitions.items()
                        ),
                    }
                    for topic, partitions in topics.items()
                ),
            }
            for producer_id, topics in results.items()
        ),
    )


def _row(marker: Entity) -> MarkerRow:
    return MarkerRow(
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        marker.transaction_result,
        [
            (TopicPartition(topic.name, number), ANY_EPOCH)
            for topic in marker.topics
            for number in topic.partition_indexes
        ],
    )


HANDLERS: Final[dict[int, Handler]] = {WRITE_TXN_MARKERS: write_txn_markers}
