"""The requests to the transaction coordinator, independent of the versions of the wire protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from minikafka.base.model import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1


class InitProducerIdRequest(NamedTuple):
    """A producer that starts with this transactional id, or recovers after an error with its id and epoch (KIP-360)."""

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class AddPartitionsRequest(NamedTuple):
    """Partitions that a producer is about to write in its transaction (AddPartitionsToTxn).

    AddOffsetsToTxn is the same request for one partition of `__consumer_offsets`. `client`: the client id and address
    of the producer, for diagnosis.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Sequence[TopicPartition]
    client: str = ""


class VerifyRequest(NamedTuple):
    """A leader's question whether a producer's transaction contains these partitions (KIP-890)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Sequence[TopicPartition]


class EndRequest(NamedTuple):
    """The end of a producer's transaction (EndTxn). `committed` is False for an abort."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


class DescribeRequest(NamedTuple):
    """DescribeTransactions (KIP-664)."""

    transactional_ids: Sequence[str]


class ListRequest(NamedTuple):
    """ListTransactions (KIP-664, KIP-994). Empty filters let every transaction pass.

    `states`: names of states. `min_duration_ms`: least age of the transaction in milliseconds, -1 for any age.
    """

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    min_duration_ms: int = -1
