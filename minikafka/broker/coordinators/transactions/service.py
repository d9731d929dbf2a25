"""The transaction coordinator of a broker: the core in `minikafka.transactions`, its host and its topic."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import CoordinationError, ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.base.names import TRANSACTION_TOPIC
from minikafka.base.ports import Clock, Tasks
from minikafka.broker.cluster.producer_ids import ProducerIds
from minikafka.broker.cluster.step_gate import StepGate
from minikafka.broker.coordinators.host import CoordinatorHost, Replicas
from minikafka.broker.coordinators.internal_topic import InternalTopic, TopicSettings
from minikafka.transactions.coordinator import TransactionCoordinator
from minikafka.transactions.messages.commands import (
    AllocateProducerId,
    DropMarkers,
    EndedTransaction,
    SendMarkers,
)
from minikafka.transactions.messages.requests import (
    NO_PRODUCER_ID,
    AddPartitionsRequest,
    DescribeRequest,
    EndRequest,
    InitProducerIdRequest,
    ListRequest,
    VerifyRequest,
)
from minikafka.transactions.settings import TransactionSettings
from minikafka.transactions.steps import PREPARE, TRANSACTION

logger = logging.getLogger(__name__)

Respond: TypeAlias = Callable[[Any], None]
"""A callback that sends a response from `transactions.messages.responses`. It is called exactly once."""


class Sender(Protocol):
    """The methods of the sender of markers (`markers.py`) that the service uses.

    `on_written` and `on_fenced` are called without blocking, for markers that were sent.
    """

    on_written: Callable[[EndedTransaction, Sequence[TopicPartition]], None]
    on_fenced: Callable[[EndedTransaction], None]

    def send(self, command: SendMarkers) -> None:
        """Send markers until they are written, or until `drop` is called for their coordinator's partition."""

    def drop(self, partition: int) -> None:
        """Stop sending the markers of this partition of `__transaction_state`."""


class TransactionService:
    """The transaction coordinator of one broker. Each method handles one kind of request."""

    def __init__(
        self,
        config: BrokerConfig,
        replicas: Replicas,
        topic: InternalTopic,
        clock: Clock,
        tasks: Tasks,
        producer_ids: ProducerIds,
        sender: Sender,
        gate: StepGate,
    ) -> None:
        self.topic = topic
        self._clock = clock
        self._tasks = tasks
        self._producer_ids = producer_ids
        self._sender = sender
        self._gate = gate
        sender.on_written = self._written
        sender.on_fenced = self._fenced
        self._core = TransactionCoordinator(
            settings_of(config), clock.wall_ms, topic.partition_count
        )
        self._host = CoordinatorHost(self._core, topic, replicas, clock, tasks, self._carry_out_own)

    def skipped(self, partition: int | None = None) -> list[dict[str, Any]]:
        """Return the corrupt batches that this coordinator has skipped (`CoordinatorHost.skipped`)."""
        return self._host.skipped(partition)

    # ---- requests

    def init_producer_id(self, request: InitProducerIdRequest, respond: Respond) -> None:
        """Handle InitProducerId with a transactional id."""
        self._host.carry_out(self._core.init_producer_id(request, respond, self._clock.now()))

    def add_partitions(self, request: AddPartitionsRequest, respond: Respond) -> None:
        """Handle AddPartitionsToTxn and AddOffsetsToTxn."""
        self._host.carry_out(self._core.add_partitions(request, respond, self._clock.now()))

    def verify(self, request: VerifyRequest, respond: Respond) -> None:
        """Handle the question of a leader whether a transaction contains partitions."""
        self._host.carry_out(self._core.verify(request, respond))

    def end(self, request: EndRequest, respond: Respond) -> None:
        """Handle EndTxn."""
        if self._gate.is_open:
            self._host.carry_out(self._core.end(request, respond, self._clock.now()))
        else:
            self._tasks.spawn(self._end_in_steps(request, respond), "end transaction")

    async def _end_in_steps(self, request: EndRequest, respond: Respond) -> None:
        await self._gate.reached(TRANSACTION, PREPARE)
        self._host.carry_out(self._core.end(request, respond, self._clock.now()))

    def describe(self, request: DescribeRequest, respond: Respond) -> None:
        """Handle DescribeTransactions."""
        self._host.carry_out(self._core.describe(request, respond, self._clock.now()))

    def list_transactions(self, request: ListRequest, respond: Respond) -> None:
        """Handle ListTransactions."""
        self._host.carry_out(self._core.list_transactions(request, respond, self._clock.now()))

    def explain(self, tp: TopicPartition) -> dict[str, Any]:
        """Return the transactions without marker in a partition, in the format of `TransactionCoordinator.explain`."""
        return self._core.explain(tp)

    # ---- commands of the core

    def _carry_out_own(self, command: AllocateProducerId | SendMarkers | DropMarkers) -> None:
        if isinstance(command, AllocateProducerId):
            self._tasks.spawn(self._allocate(command.token), "producer id")
        elif isinstance(command, SendMarkers):
            self._sender.send(command)
        else:
            self._sender.drop(command.partition)

    async def _allocate(self, token: int) -> None:
        producer_id, code = NO_PRODUCER_ID, ErrorCode.NONE
        try:
            producer_id = await self._producer_ids.next()
        except (CoordinationError, ValueError) as error:
            logger.warning("cannot allocate a producer id: %s: %s", type(error).__name__, error)
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        self._host.carry_out(self._core.allocated(token, producer_id, code, self._clock.now()))

    # ---- results of markers

    def _written(self, ended: EndedTransaction, partitions: Sequence[TopicPartition]) -> None:
        self._host.carry_out(self._core.markers_written(ended, partitions, self._clock.now()))

    def _fenced(self, ended: EndedTransaction) -> None:
        self._host.carry_out(self._core.fenced(ended, self._clock.now()))


def transactions_topic(config: BrokerConfig) -> TopicSettings:
    """Return the settings of `__transaction_state` from a broker's configuration."""
    return TopicSettings(
        TRANSACTION_TOPIC,
        config.transaction_state_log_num_partitions,
        config.transaction_state_log_replication_factor,
        "transaction.state.log.replication.factor",
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config.transaction_state_log_min_isr),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        },
        load_bytes=config.transaction_state_log_load_buffer_size,
    )


def settings_of(config: BrokerConfig) -> TransactionSettings:
    """Return the settings of the transaction coordinator from a broker's configuration."""
    return TransactionSettings(
        max_timeout_ms=config.transaction_max_timeout_ms,
        expiration_ms=config.transactional_id_expiration_ms,
        abort_timed_out_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        remove_expired_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
    )
