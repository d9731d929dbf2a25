"""The responses of the transaction coordinator. An error is Kafka's code, 0 for success."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from minikafka.base.model import TopicPartition
from minikafka.transactions.messages.requests import NO_PRODUCER_EPOCH, NO_PRODUCER_ID


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


class DescribeResponse(NamedTuple):
    """The transactional ids of a `DescribeRequest`, in its order."""

    transactions: Sequence[DescribedTransaction]


class ListedTransaction(NamedTuple):
    """A transactional id in the response to a `ListRequest`."""

    transactional_id: str
    producer_id: int
    state: str


class ListResponse(NamedTuple):
    """The transactional ids that pass the filters. `unknown_states`: names in the request that are no state."""

    error: int
    unknown_states: Sequence[str] = ()
    transactions: Sequence[ListedTransaction] = ()


Response: TypeAlias = (
    InitProducerIdResponse | AddPartitionsResponse | EndResponse | DescribeResponse | ListResponse
)
