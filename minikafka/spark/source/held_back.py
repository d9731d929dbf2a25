"""The warning about records that a `read_committed` query does not read, because a transaction is open.

Such a query reads up to the last stable offset. If a transaction is open, later records wait, also those of other
producers. Without the warning, a batch would leave them out and a stream would wait without a reason.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from minikafka.base.errors import KafkaError, ProtocolViolation
from minikafka.base.model import TopicPartition
from minikafka.base.open_transactions import holding
from minikafka.spark.wire import producers
from minikafka.spark.wire.deadline import Deadline
from minikafka.spark.wire.leaders import Leaders, Position, Unreachable
from minikafka.spark.wire.protocol import LATEST, Isolation

logger = logging.getLogger(__name__)

_SHOWN_MAX: Final = 3
"""Maximum number of partitions whose transactions are looked up for one warning."""
_warned: set[str] = set()
"""The warnings that this process has logged. A stream that waits plans again and again."""


def warn_of_open_transactions(
    leaders: Leaders, stable: Mapping[TopicPartition, Position], deadline: Deadline
) -> None:
    """Log why records after the last stable offsets `stable` are not read. Raises no error."""
    if leaders.isolation is not Isolation.READ_COMMITTED:
        return
    try:
        high = high_watermarks(leaders, stable, deadline)
    except (KafkaError, Unreachable, OSError, ProtocolViolation) as error:
        logger.info("The high watermarks are not known: %s", error)
        return
    held = [tp for tp, at in stable.items() if at.offset < high[tp]]
    for tp in held[:_SHOWN_MAX]:
        text = reason(leaders, tp, stable[tp].offset)
        if text and text not in _warned:
            _warned.add(text)
            logger.warning("%s", text)


def high_watermarks(
    leaders: Leaders, partitions: Mapping[TopicPartition, Position], deadline: Deadline
) -> dict[TopicPartition, int]:
    """Return the high watermarks. Raises the errors of `Leaders.list_offsets`."""
    wanted = dict.fromkeys(partitions, LATEST)
    found = leaders.list_offsets(wanted, deadline, Isolation.READ_UNCOMMITTED)
    return {tp: position.offset for tp, position in found.items()}


def reason(leaders: Leaders, tp: TopicPartition, stable: int) -> str:
    """Return which transaction holds back a partition, and how to end it; "" if it has ended in the meantime."""
    address = leaders.address(tp)
    if address is None:
        return holding(tp, stable)
    try:
        body = producers.describe_producers_request(tp)
        answer = leaders.connection(address).call(producers.DESCRIBE_PRODUCERS, body)
        found = producers.parse_open_transactions(answer)
    except (OSError, ProtocolViolation) as error:
        leaders.drop(address)
        logger.info("The open transactions of %s are not known: %s", tp, error)
        return holding(tp, stable)
    if not found:
        return ""
    producer_id, start = min(found.items(), key=lambda item: item[1])
    body = producers.list_transactions_request(producer_id)
    listed = leaders.call_all(producers.LIST_TRANSACTIONS, body, producers.parse_transactional_ids)
    names = [name for answer in listed for name in answer]
    is_complete = len(listed) == leaders.broker_count()
    return holding(tp, stable, producer_id, start, names[0] if names else None, is_complete)
