"""The guards of transactional batches in Produce requests: each says that the coordinator has verified a batch.

Before a batch opens a transaction in a log, the transaction coordinator must know the partition as part of the
producer's transaction. The batches of a request are verified together, before the first of them is appended. As in
Kafka, a request with transactional batches needs a transactional id, and all of them must be of one producer.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Final, TypeAlias

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.broker.clients.access import Verdicts
from minikafka.broker.coordinators.verification import TransactionVerifier
from minikafka.broker.produce.large import Steps
from minikafka.broker.rpc.coordinator_calls import VerifyRow
from minikafka.kafka.records.header import (
    HEADER,
    HEADER_BYTES,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL,
)
from minikafka.kafka.wire.produce import STEP_ELEMENTS, ProduceRequest
from minikafka.storage.replication.partition import Partition
from minikafka.storage.replication.verification import NO_GUARD

_ABORTABLE_SINCE: Final = 11
"""From this version of Produce on, clients know TRANSACTION_ABORTABLE."""
_SEVERAL_PRODUCERS: Final = -int(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
_NOT_ENOUGH: Final = int(ErrorCode.NOT_ENOUGH_REPLICAS)
_TRANSLATED: Final = {
    int(ErrorCode.PRODUCER_FENCED): int(ErrorCode.INVALID_PRODUCER_EPOCH),
    int(ErrorCode.CONCURRENT_TRANSACTIONS): _NOT_ENOUGH,
    int(ErrorCode.NETWORK_EXCEPTION): _NOT_ENOUGH,
    int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS): _NOT_ENOUGH,
    int(ErrorCode.COORDINATOR_NOT_AVAILABLE): _NOT_ENOUGH,
    int(ErrorCode.NOT_COORDINATOR): _NOT_ENOUGH,
}
"""The coordinator's error → the error of the batch. As in Kafka, a client gets NOT_ENOUGH_REPLICAS if it may send the
batch again: clients retry it without asking for metadata first."""

_ABORTABLE: Final = int(ErrorCode.TRANSACTION_ABORTABLE)
_NO_TRANSACTION: Final = int(ErrorCode.INVALID_TXN_STATE)
_MAGIC: Final = 16
_ATTRIBUTES_LOW: Final = 22
_PRODUCER_ID_HIGH: Final = 43
"""Positions in a batch of its magic, and of the bytes that tell whether it is transactional and has a producer id."""

Part: TypeAlias = tuple[bytes, int]
"""Topic and number of a partition."""
Found: TypeAlias = Callable[[Part], int]
"""Function (partition) -> the guard of the partition's batch, or a negated error code if the batch is refused."""


class Guards:
    """The guards of the transactional batches on one connection. `resume()` is called when a question is answered.

    `find(topic, number)` returns a hosted partition. `transactions`: the transactional ids that the client may use.
    """

    __slots__ = ("_find", "_resume", "_transactions", "_verifier")

    def __init__(
        self,
        find: Callable[[bytes, int], Partition | None],
        verifier: TransactionVerifier,
        resume: Callable[[], None],
        transactions: Verdicts | None,
    ) -> None:
        self._transactions = transactions
        self._find = find
        self._verifier = verifier
        self._resume = resume

    def of(
        self, view: memoryview, request: ProduceRequest, version: int
    ) -> Generator[bool, None, Found]:
        """Verify the batches of a request. Return the guards: a function from a partition to a guard or negated error.

        Yield True if the next step must wait for the coordinator, False after any other step.
        """
        asked: dict[Part, int] = {}
        producer: tuple[int, int] | None = None
        seen = 0
        for topic, parts in request.topics:
            for number, start, end in parts:
                seen += 1
                if not seen % STEP_ELEMENTS:
                    yield False
                if end - start < HEADER_BYTES or not _is_transactional(view, start):
                    continue
                header = HEADER.unpack_from(view, start)
                if producer is None and not self._may_use(request.transactional_id):
                    return NO_ID
                if producer not in (None, (header[PRODUCER_ID], header[PRODUCER_EPOCH])):
                    return always(_SEVERAL_PRODUCERS)
                producer = header[PRODUCER_ID], header[PRODUCER_EPOCH]
                partition = self._find(topic, number)
                if partition is not None and (guard := partition.verification_of(view[start:end])):
                    asked[topic, number] = guard
        if not asked or producer is None or request.transactional_id is None:
            return NO_GUARDS
        if self._verifier.is_enabled:
            yield from self._verify(request.transactional_id, producer, asked, version)
        return lambda part: asked.get(part, NO_GUARD)

    def _may_use(self, transactional_id: bytes | None) -> bool:
        """Return True if the client may send transactional batches with this id, which must not be None."""
        if transactional_id is None:
            return False
        return self._transactions is None or self._transactions.allow(transactional_id)

    def _verify(
        self,
        transactional_id: bytes,
        producer: tuple[int, int],
        asked: dict[Part, int],
        version: int,
    ) -> Steps:
        """Ask the coordinator; replace the guard of each partition that is not in the transaction by an error."""
        parts = {TopicPartition(topic.decode(), number): (topic, number) for topic, number in asked}
        row = VerifyRow(transactional_id.decode("utf-8", "replace"), *producer, tuple(parts))
        is_answered = False

        def answered(errors: Mapping[TopicPartition, int]) -> None:
            nonlocal is_answered
            is_answered = True
            for tp, error in errors.items():
                if error:
                    asked[parts[tp]] = -_translated(error, version)
            self._resume()

        self._verifier.verify(row, answered)
        while not is_answered:
            yield True


def always(guard: int) -> Found:
    """Return guards that are the same for every partition."""
    return lambda part: guard


NO_GUARDS: Final = always(NO_GUARD)
"""The guards of a request whose batches need no verification."""
NO_ID: Final = always(-int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
"""The guards of a request with transactional batches whose transactional id is missing or not allowed to the client."""


def _is_transactional(view: memoryview, start: int) -> bool:
    """Return True if a transactional batch of magic 2 with a producer id begins at `start`."""
    return (
        bool(view[start + _ATTRIBUTES_LOW] & TRANSACTIONAL)
        and view[start + _MAGIC] == 2
        and view[start + _PRODUCER_ID_HIGH] < 0x80
    )


def _translated(error: int, version: int) -> int:
    if error == _ABORTABLE and version < _ABORTABLE_SINCE:
        return _NO_TRANSACTION
    return _TRANSLATED.get(error, error)
