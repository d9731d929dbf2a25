"""What the transaction coordinator asks its host for, and the responses in its answers.

An error in a response is Kafka's code, 0 for success.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from minikafka.base.coordinators import Append, LoadPartition
from minikafka.base.model import TopicPartition
from minikafka.deciders.decider import Answer
from minikafka.deciders.transactions.states import NO_PRODUCER_EPOCH, NO_PRODUCER_ID


class AllocateProducerId(NamedTuple):
    """A question: allocate a new producer id. The value of its outcome is the id, or an `ErrorCode`."""

    token: int


class SendMarkers(NamedTuple):
    """Write the marker that ends a transaction to each of these partitions, and try again until it is written.

    The host reports `MarkersWritten` for partitions whose log has the marker, or that were deleted. It reports
    `MarkersFenced` if a partition's leader knows a later coordinator. `partition`: the partition of
    `__transaction_state` of the transactional id.
    """

    partition: int
    ended: EndedTransaction
    partitions: Sequence[TopicPartition]


class DropMarkers(NamedTuple):
    """Stop sending markers for the transactional ids of this partition of `__transaction_state`."""

    partition: int


class EndedTransaction(NamedTuple):
    """What the markers of one ended transaction contain. `coordinator_epoch`: the coordinator's leader epoch.

    `number` is not in the markers. It tells the transactions of one epoch apart: a host returns it as it got it.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    number: int = 0


Command: TypeAlias = (
    Answer | Append | LoadPartition | AllocateProducerId | SendMarkers | DropMarkers
)

# ---- responses


class InitProducerIdResponse(NamedTuple):
    """The id and epoch with which the producer goes on."""

    error: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class AddPartitionsResponse(NamedTuple):
    """The error code of each partition, for `AddPartitionsRequest` and `VerifyRequest`."""

    errors: Mapping[TopicPartition, int]


class EndResponse(NamedTuple):
    """The response to an `EndRequest`, sent when the decision is written, before the markers."""

    error: int


class DescribedTransaction(NamedTuple):
    """A transactional id. `start_ms`: the start of its last transaction in Unix milliseconds, -1 if it had none.

    With an error, every other field is as in Kafka's response: empty or 0.
    """

    transactional_id: str
    error: int
    state: str = ""
    timeout_ms: int = 0
    start_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    partitions: Sequence[TopicPartition] = ()


class DescribeTransactionsResponse(NamedTuple):
    """The transactional ids of a `DescribeRequest`, in its order."""

    transactions: Sequence[DescribedTransaction]


class ListedTransaction(NamedTuple):
    """A transactional id in the response to a `ListRequest`."""

    transactional_id: str
    producer_id: int
    state: str


class ListTransactionsResponse(NamedTuple):
    """The transactional ids that pass the filters. `unknown_states`: names in the request that are no state."""

    error: int
    unknown_states: Sequence[str] = ()
    transactions: Sequence[ListedTransaction] = ()
