"""The transaction coordinator of a broker: `deciders.transactions` in its host, with its topic and producer ids."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import CoordinationError, ErrorCode
from minikafka.base.names import TRANSACTION_TOPIC
from minikafka.base.ports import Clock, Tasks
from minikafka.broker.coordinators.host import CoordinatorHost
from minikafka.broker.coordinators.internal_topic import InternalTopic, TopicSettings
from minikafka.broker.coordinators.markers import MarkerSender
from minikafka.broker.host import CommandTable
from minikafka.broker.replicas.manager import ReplicaManager
from minikafka.broker.step_gate import StepGate
from minikafka.deciders.decider import Outcome
from minikafka.deciders.transactions.commands import AllocateProducerId, DropMarkers, SendMarkers
from minikafka.deciders.transactions.context import TransactionSettings
from minikafka.deciders.transactions.coordinator import TransactionCoordinator
from minikafka.deciders.transactions.events import EndRequest
from minikafka.deciders.transactions.steps import PREPARE, TRANSACTION

logger = logging.getLogger(__name__)


class ProducerIds:
    """The source of new producer ids on one broker, unique in the cluster (R72).

    `claim` claims a block of ids of the coordination service, and returns the first and the last id of the block.
    Invariant: an id is returned to at most one producer. A broker does not use a block if the outcome of its claim is
    uncertain.
    """

    def __init__(self, claim: Callable[[], Awaitable[tuple[int, int]]]) -> None:
        self._claim = claim
        self._lock = asyncio.Lock()
        self._next = 0
        self._last = -1

    async def prepare(self) -> None:
        """Claim the first block, so that producers can start even if the coordination service fails later.

        A failed claim is ignored. `next` claims again and raises the error if this claim fails too.
        """
        async with self._lock:
            if self._next > self._last:
                with suppress(CoordinationError, ValueError):
                    self._next, self._last = await self._claim()

    async def next(self) -> int:
        """Return an unused producer id. Raises CoordinationError or ValueError if a claim fails."""
        async with self._lock:
            if self._next > self._last:
                self._next, self._last = await self._claim()
            producer_id = self._next
            self._next += 1
            return producer_id

    async def allocate(self) -> int | ErrorCode:
        """Return an unused producer id, or the error for a producer, which tries again."""
        try:
            return await self.next()
        except (CoordinationError, ValueError) as error:
            logger.warning("cannot allocate a producer id: %s: %s", type(error).__name__, error)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE


class TransactionHost(CoordinatorHost):
    """The transaction coordinator of one broker, in its host."""

    def __init__(
        self,
        config: BrokerConfig,
        replicas: ReplicaManager,
        topic: InternalTopic,
        clock: Clock,
        tasks: Tasks,
        producer_ids: ProducerIds,
        sender: MarkerSender,
        gate: StepGate,
    ) -> None:
        self._tasks = tasks
        self._producer_ids = producer_ids
        self._gate = gate
        coordinator = TransactionCoordinator(
            settings_of(config),
            clock.wall_ms,
            topic.partition_count,
            lambda: clock.wall_ms() - clock.advanced_ms,
        )
        self.context = coordinator.context
        """The transactional ids that this broker coordinates. Other modules must not change them."""
        own: CommandTable = {
            AllocateProducerId: self._allocate,
            SendMarkers: sender.send,
            DropMarkers: sender.drop,
        }
        super().__init__(coordinator, topic, replicas, clock, tasks, own)
        sender.report = self.handle

    def end(self, request: EndRequest) -> None:
        """Handle EndTxn, after the step at which a test or a user may hold it."""
        if self._gate.is_open:
            self.handle(request)
        else:
            self._tasks.spawn(self._end_in_steps(request), "end transaction")

    async def _end_in_steps(self, request: EndRequest) -> None:
        await self._gate.reached(TRANSACTION, PREPARE)
        self.handle(request)

    def _allocate(self, command: AllocateProducerId) -> None:
        self._tasks.spawn(self._allocated(command.token), "producer id")

    async def _allocated(self, token: int) -> None:
        self.handle(Outcome(token, await self._producer_ids.allocate()))


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
