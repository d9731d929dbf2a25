"""What comes into the transaction coordinator: requests, independent of the versions of the protocol, and reports.

The events of every coordinator (`base/coordinators.py`, `deciders/decider.py`) are among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from minikafka.base.coordinators import TopicEvent
from minikafka.base.model import TopicPartition
from minikafka.deciders.decider import Caller, ClockAdvanced, Outcome, TimerDue
from minikafka.deciders.transactions.commands import EndedTransaction


class InitProducerIdRequest(NamedTuple):
    """A producer that starts with this transactional id, or recovers after an error with its id and epoch (KIP-360).

    The coordinator answers when the id and epoch are written, or immediately with an error. If the producer has an open
    transaction, it is aborted, and the answer is CONCURRENT_TRANSACTIONS: the producer tries again.
    """

    transactional_id: str
    timeout_ms: int
    producer_id: int
    producer_epoch: int
    caller: Caller


class AddPartitionsRequest(NamedTuple):
    """Partitions that a producer is about to write in its transaction (AddPartitionsToTxn).

    AddOffsetsToTxn is the same request for one partition of `__consumer_offsets`. `client`: the client id and address
    of the producer, for diagnosis. The coordinator answers when the partitions are written, or immediately with an
    error. While the last transaction is ending, the request waits.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Sequence[TopicPartition]
    client: str
    caller: Caller


class VerifyRequest(NamedTuple):
    """A leader's question whether a producer's transaction contains these partitions (KIP-890).

    The coordinator answers immediately.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Sequence[TopicPartition]
    caller: Caller


class EndRequest(NamedTuple):
    """The end of a producer's transaction (EndTxn). `committed` is False for an abort.

    The coordinator answers when the decision is written, or immediately with an error.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    caller: Caller


class DescribeTransactionsRequest(NamedTuple):
    """DescribeTransactions (KIP-664). The coordinator answers immediately."""

    transactional_ids: Sequence[str]
    caller: Caller


class ListTransactionsRequest(NamedTuple):
    """ListTransactions (KIP-664, KIP-994). Empty filters let every transaction pass. Answered immediately.

    `states`: names of states. `min_duration_ms`: least age of the transaction in milliseconds, -1 for any age.
    """

    states: Sequence[str]
    producer_ids: Sequence[int]
    min_duration_ms: int
    caller: Caller


class MarkersWritten(NamedTuple):
    """These partitions have the marker of an ended transaction, or were deleted."""

    ended: EndedTransaction
    partitions: Sequence[TopicPartition]


class MarkersFenced(NamedTuple):
    """A partition's leader knows a later coordinator than that of the marker. No more markers are sent."""

    ended: EndedTransaction


ProducerRequest: TypeAlias = AddPartitionsRequest | VerifyRequest | EndRequest
"""The requests of a producer that has an id and epoch."""
Event: TypeAlias = (
    InitProducerIdRequest
    | ProducerRequest
    | DescribeTransactionsRequest
    | ListTransactionsRequest
    | MarkersWritten
    | MarkersFenced
    | TopicEvent
    | Outcome
    | TimerDue
    | ClockAdvanced
)
