"""A leader's questions to the coordinators of transactions (KIP-890, part 1).

Before the first batch of a producer's transaction is appended to a partition, its leader asks the coordinator of the
transactional id whether the transaction contains the partition. The questions of all connections to one coordinator
go out in batches. Invariant: every question is answered once, at the latest after `CALL_TIMEOUT_MS`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from minikafka.base.coordinators import partition_of
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import NO_LEADER, BrokerId, TopicPartition
from minikafka.base.names import TRANSACTION_TOPIC
from minikafka.base.ports import Tasks
from minikafka.broker.coordinators.peer_calls import OtherBrokers, PeerCalls
from minikafka.broker.coordinators.transaction_host import TransactionHost
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.rpc.coordinator_calls import (
    VERIFY_TRANSACTIONS,
    VerifyRow,
    decode_errors,
    decode_verifications,
    encode_errors,
    encode_verifications,
)
from minikafka.broker.rpc.fields import Body
from minikafka.broker.settings.dynamic_config import DynamicConfig
from minikafka.deciders.transactions.commands import AddPartitionsResponse
from minikafka.deciders.transactions.events import VerifyRequest

logger = logging.getLogger(__name__)

CALL_TIMEOUT_MS: Final = 5_000
_NO_ANSWER: Final = int(ErrorCode.NETWORK_EXCEPTION)
_NO_COORDINATOR: Final = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
_IS_ELSEWHERE: Final = frozenset({_NO_ANSWER, _NO_COORDINATOR, int(ErrorCode.NOT_COORDINATOR)})
"""Errors of a coordinator that has moved, or may have moved."""
_HOME: Final = (TRANSACTION_TOPIC,)

Done: TypeAlias = Callable[[Mapping[TopicPartition, int]], None]
"""A callback that gets the error code of each partition, 0 if the transaction contains it."""


class _Question(NamedTuple):
    """A question to another broker's coordinator."""

    row: VerifyRow
    done: Done


class TransactionVerifier:
    """The verification of producers' transactions, for this broker's leaders and by this broker's coordinator.

    `own`: this broker's coordinator, which answers at once. `settings`: if they turn
    `transaction.partition.verification.enable` off, leaders ask no coordinator.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        metadata: MetadataCache,
        others: OtherBrokers,
        tasks: Tasks,
        own: TransactionHost,
        settings: DynamicConfig,
    ) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._others = others
        self._own = own
        self._settings = settings
        self._calls: PeerCalls[_Question] = PeerCalls(tasks, self._call, "verifications-by")

    @property
    def is_enabled(self) -> bool:
        """False if batches are appended unverified (`transaction.partition.verification.enable`)."""
        return self._settings.current.transaction_partition_verification_enable

    def verify(self, row: VerifyRow, done: Done) -> None:
        """Ask the coordinator whether a producer's transaction contains partitions. `done` may be called at once."""
        coordinator = self._coordinator_of(row.transactional_id)
        if coordinator == NO_LEADER:
            self._metadata.read_soon(_HOME)
            done(dict.fromkeys(row.partitions, _NO_COORDINATOR))
        elif coordinator == self._broker_id:
            self._own.handle(VerifyRequest(*row, lambda response: done(response.errors)))
        else:
            self._calls.add(coordinator, _Question(row, done))

    def verify_one(
        self,
        tp: TopicPartition,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        done: Callable[[int], None],
    ) -> None:
        """Ask the coordinator whether the producer's transaction contains a partition. `done` gets the error code."""
        if not self.is_enabled:
            done(0)
            return
        row = VerifyRow(transactional_id, producer_id, producer_epoch, (tp,))
        self.verify(row, lambda errors: done(errors[tp]))

    async def serve(self, body: Body) -> Body:
        """Answer the call `verify_transactions` of another broker's leaders. Raises KafkaError."""
        rows = decode_verifications(body)
        answers: list[asyncio.Future[AddPartitionsResponse]] = []
        for row in rows:
            answers.append(asyncio.get_running_loop().create_future())
            self._own.handle(VerifyRequest(*row, answers[-1].set_result))
        errors = [(await answer).errors for answer in answers]
        return encode_errors(
            [[found[tp] for tp in row.partitions] for row, found in zip(rows, errors, strict=True)]
        )

    def _coordinator_of(self, transactional_id: str) -> BrokerId:
        """Return the broker that coordinates the transactional id; NO_LEADER if it has no coordinator."""
        states = self._metadata.topics.get(TRANSACTION_TOPIC, {})
        state = states.get(partition_of(transactional_id, len(states))) if states else None
        if state is None or state.leader not in self._metadata.brokers:
            return NO_LEADER
        return state.leader

    async def _call(self, coordinator: BrokerId, questions: Sequence[_Question]) -> None:
        errors: Sequence[Sequence[int]]
        lengths = [len(question.row.partitions) for question in questions]
        try:
            body = encode_verifications(question.row for question in questions)
            answer = await self._others.call(
                coordinator, VERIFY_TRANSACTIONS, body, CALL_TIMEOUT_MS
            )
            errors = decode_errors(answer, lengths)
        except (OSError, KafkaError) as error:
            logger.info("broker %d does not verify transactions: %s", coordinator, error)
            errors = [[_NO_ANSWER] * length for length in lengths]
        if any(not _IS_ELSEWHERE.isdisjoint(codes) for codes in errors):
            self._metadata.read_soon(_HOME)  # the producer sends its batch again
        for (row, done), results in zip(questions, errors, strict=True):
            done(dict(zip(row.partitions, results, strict=True)))
