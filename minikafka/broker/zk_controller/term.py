"""One term in office: the loading of the cluster, the queue of events, the machine and its effects.

The queue holds signals (a path is to be read again) and events that carry their data. One consumer takes
them in order: a signal is read, the machine is asked, its effects are carried out, and when the last of
them is a question its outcome goes back to the machine; only when the machine is no longer busy comes
the next item. Signals are level-triggered: equal ones that wait are one, and each read arms its
watch first (S31). Invariant: once `over`, a term hands nothing to brokers or ZooKeeper.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import (
    ControllerMoved,
    ErrorCode,
    KafkaError,
    StaleSession,
)
from minikafka.base.model import (
    Broker,
    BrokerId,
    ControllerRequest,
    ControllerResponse,
    LeaderAndIsrRequest,
    StopReplicaRequest,
)
from minikafka.base.ports import Clock, Coordination, Gate, Ledger
from minikafka.broker.controllership import Controllership
from minikafka.broker.zk_controller.lines import (
    answer_lines,
    decision_lines,
    event_lines,
    step_lines,
)
from minikafka.broker.zk_controller.reader import Reader, Signal
from minikafka.broker.zk_controller.store import ControllerStore
from minikafka.controller.events import (
    AnswerAdmin,
    AnswerControlledShutdown,
    DeleteDeletionMarks,
    DeleteIsrChanges,
    DeleteLogDirEvents,
    DeletePreferredElection,
    DeleteTopicNodes,
    Effect,
    Event,
    ExternalEvent,
    GiveTopicIds,
    LeaderAndIsrAnswered,
    LeaderAndIsrRead,
    Outcome,
    ReadLeaderAndIsr,
    ReadUncleanSettings,
    SendRequest,
    StartChannel,
    StepReached,
    StopChannel,
    StopReplicaAnswered,
    TrimReassignments,
    UncleanSettingsRead,
    UnwatchStates,
    WatchStates,
    WriteAssignments,
    WriteLeaderAndIsr,
)
from minikafka.controller.machine import ControllerMachine
from minikafka.ledger.record import ANSWER, DECISION, EVENT, REQUEST, RESPONSE, STEP
from minikafka.ledger.requests import request_lines, response_line
from minikafka.zk.nodes import admin_requests, election, notifications

logger = logging.getLogger(__name__)


class Channels(Protocol):
    """The ordered queues to the brokers (`rpc/channels.py`)."""

    def add(self, broker: Broker) -> None:
        """Open the channel to a registered broker."""

    def remove(self, broker_id: BrokerId) -> None:
        """Drop the channel and what waits in it."""

    def send(
        self,
        broker_id: BrokerId,
        request: ControllerRequest,
        on_response: Callable[[BrokerId, ControllerRequest, ControllerResponse], None],
    ) -> None:
        """Queue a request."""

    def stop(self) -> None:
        """Drop all channels at once."""

    def waiting(self, broker_id: BrokerId) -> int:
        """Requests that wait for this broker's answer, the one in flight included."""

    def backlog(self) -> dict[BrokerId, int]:
        """`waiting` of every broker with a channel (C39)."""


class Term:
    """Runs one `ControllerMachine` from its election until it resigns or is told that it is over.

    `is_ours()` reads `/controller` again, with its watch, and says whether it still names this session.
    """

    def __init__(
        self,
        coordination: Coordination,
        store: ControllerStore,
        channels: Channels,
        clock: Clock,
        machine: ControllerMachine,
        is_ours: Callable[[], Awaitable[bool]],
        ledger: Ledger,
        gate: Gate,
    ) -> None:
        self.machine = machine
        self.controllership = Controllership()
        self.state = "ControllerChange"
        self._coordination = coordination
        self._store = store
        self._session = store.session
        self._channels = channels
        self._clock = clock
        self._is_ours = is_ours
        self._ledger = ledger
        self._gate = gate
        self._events = 0
        self._cause = ""
        self._queue: deque[Signal | ExternalEvent] = deque()
        self._filled = asyncio.Event()
        self.reader = Reader(coordination, store, self.put)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        """Answers that callers of `ask` wait for, by ticket."""
        self._tickets = 0

    @property
    def over(self) -> bool:
        """True once the term has ended."""
        return self.controllership.has_ended

    @property
    def generation(self) -> int:
        """The session that the term rests on."""
        return self._session.generation

    @property
    def queue_size(self) -> int:
        """Signals and events that wait."""
        return len(self._queue)

    def set_broker_defaults(self, config: BrokerConfig) -> None:
        """Replace the broker settings that topics inherit."""
        self._store.set_broker_defaults(config)

    # The queue.

    def put(self, item: Signal | ExternalEvent) -> None:
        """Add to the queue; a signal that waits already is not added again."""
        if self.over or (isinstance(item, Signal) and item in self._queue):
            return
        self._queue.append(item)
        self._filled.set()

    async def ask(self, event: Callable[[int], ExternalEvent]) -> Any:
        """Queue the event made with a ticket, and wait for the machine's answer to it. Raises KafkaError."""
        self._tickets += 1
        ticket = self._tickets
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[ticket] = answer
        self.put(event(ticket))
        try:
            return await self.controllership.wait_for(answer)
        finally:
            del self._answers[ticket]

    def end(self) -> None:
        """At once: nothing more is sent, what waits is dropped, callers hear NOT_CONTROLLER (R9, R13)."""
        if self.over:
            return
        self.controllership.end()
        self._channels.stop()
        self._queue.clear()
        self._filled.set()

    async def run(self) -> None:
        """Load, then handle the queue until over. Raises ControllerMoved, StaleSession, CoordinationError."""
        await self.carry_out(await self.reader.load())
        while not self.over:
            await self.settle()
            self.state = "Idle"
            self._filled.clear()
            if not self.over:
                await self._filled.wait()

    async def settle(self) -> None:
        """Handle what is in the queue, and what comes of it, until nothing is left."""
        while self._queue:
            await self._process(self._queue.popleft())

    async def _process(self, item: Signal | ExternalEvent) -> None:
        self.state = item.value if isinstance(item, Signal) else type(item).__name__
        if not isinstance(item, Signal):
            await self.carry_out(item)
            return
        if item is Signal.CONTROLLER:
            if not await self._session.steady(self._is_ours):
                raise ControllerMoved("/controller names another broker or session")
            return
        for event in await self.reader.read(item):
            await self.carry_out(event)

    async def carry_out(self, event: ExternalEvent) -> None:
        """One event through the machine, its outcomes included, before anything else is looked at."""
        self._stay_in_office()
        self._events += 1
        self._cause = self._session.cause = f"{self.machine.context.epoch}-{self._events}"
        self._note(EVENT, event_lines(event))
        effects = self._decide(event)
        while True:
            outcome = None
            for effect in effects:
                outcome = await self._execute(effect)
                self._stay_in_office()
            if outcome is None:
                return
            effects = self._decide(outcome)

    def _decide(self, event: Event) -> list[Effect]:
        """What the machine makes of the event, its decisions noted before anything is carried out."""
        effects = self.machine.handle(event, self._clock.now(), self._cause)
        self._note(DECISION, decision_lines(self.machine.drain_decisions()))
        return effects

    def _note(self, kind: str, lines: Iterable[dict[str, Any]]) -> None:
        for fields in lines:
            self._ledger.record(kind, self._cause, fields)

    def _stay_in_office(self) -> None:
        if self.over or self._coordination.generation != self.generation:
            raise StaleSession("the term is over")

    # Effects.

    async def _execute(self, effect: Effect) -> Outcome | None:
        """Carry out one effect; the outcome if it was a question."""
        if isinstance(effect, SendRequest):
            await self._hold_authority()
            self._send(effect.broker_id, effect.request)
        elif isinstance(effect, StepReached):
            await self._reach(effect)
        elif isinstance(effect, StartChannel):
            self._channels.add(effect.broker)
        elif isinstance(effect, StopChannel):
            self._channels.remove(effect.broker_id)
        elif isinstance(effect, AnswerControlledShutdown | AnswerAdmin):
            self._answer(effect)
        elif isinstance(effect, WriteLeaderAndIsr):
            return await self._store.write_states(effect.states)
        elif isinstance(effect, ReadLeaderAndIsr):
            return LeaderAndIsrRead(await self._store.read_states(effect.partitions))
        elif isinstance(effect, ReadUncleanSettings):
            return UncleanSettingsRead(await self._store.read_unclean_settings(effect.topics))
        elif isinstance(effect, WriteAssignments):
            return await self._store.write_assignments(effect.topics)
        elif isinstance(effect, DeleteTopicNodes):
            return await self._store.delete_topics(effect.topics)
        elif isinstance(effect, GiveTopicIds):
            return await self._store.give_topic_ids(effect.topics)
        else:
            await self._clean_up(effect)
        return None

    async def _clean_up(self, effect: Effect) -> None:
        """What the controller tidies away in `/admin` and in the notifications."""
        if isinstance(effect, DeleteIsrChanges):
            await self._delete_notifications(notifications.ISR_CHANGES, effect.names)
        elif isinstance(effect, DeleteLogDirEvents):
            await self._delete_notifications(notifications.LOG_DIR_FAILURES, effect.names)
        elif isinstance(effect, DeleteDeletionMarks):
            await self._session.delete_nodes(admin_requests.deletion_paths(effect.topics))
        elif isinstance(effect, DeletePreferredElection):
            await self._session.delete_nodes([admin_requests.PREFERRED_ELECTION])
            self.put(Signal.PREFERRED_ELECTION)
        elif isinstance(effect, TrimReassignments):
            await self._store.trim_reassignments(effect.finished)
            self.put(Signal.REASSIGNMENTS)
        elif isinstance(effect, WatchStates):
            await self.reader.watch_states(effect.partitions)
        elif isinstance(effect, UnwatchStates):
            await self.reader.unwatch_states(effect.partitions)

    async def _delete_notifications(self, directory: str, names: Iterable[str]) -> None:
        await self._session.delete_nodes(notifications.paths(directory, names))

    async def _reach(self, effect: StepReached) -> None:
        self._note(STEP, step_lines(effect))
        await self._gate.reached(effect.operation, effect.step)

    def _send(self, broker_id: BrokerId, request: ControllerRequest) -> None:
        self._channels.send(broker_id, request, self._on_response)
        to = {"to": broker_id, "queued": self._channels.waiting(broker_id)}
        self._note(REQUEST, (to | fields for fields in request_lines(request)))

    async def _hold_authority(self) -> None:
        """Wait until the lease proves that no other controller can have been elected.

        Any answered request renews it.
        """
        while not self._coordination.lease_valid():
            await self._session.attached()
            await self._session.steady(lambda: self._coordination.exists(election.EPOCH))
            self._stay_in_office()

    def _answer(self, effect: AnswerControlledShutdown | AnswerAdmin) -> None:
        self._note(ANSWER, answer_lines(effect))
        future = self._answers.get(effect.ticket)
        if future is None or future.done():
            return
        if isinstance(effect, AnswerAdmin):
            future.set_result(dict(effect.results))
        elif effect.error is ErrorCode.NONE:
            future.set_result(list(effect.remaining))
        else:
            future.set_exception(KafkaError(effect.error))

    def _on_response(
        self, broker_id: BrokerId, request: ControllerRequest, response: ControllerResponse
    ) -> None:
        """R16: answers come back as events, when there is something in them that the machine can use."""
        fields = {"from": broker_id, **response_line(request, response)}
        self._ledger.record(RESPONSE, request.cause, fields)
        if response.error:
            logger.warning(
                "broker %d answered %s with error %d",
                broker_id,
                type(request).__name__,
                response.error,
            )
        elif isinstance(request, LeaderAndIsrRequest):
            lost = any(code == ErrorCode.KAFKA_STORAGE_ERROR for _, code in response.partitions)
            if lost or broker_id in self.machine.context.offline_directories:
                self.put(LeaderAndIsrAnswered(broker_id, request.broker_epoch, response))
        elif isinstance(request, StopReplicaRequest):
            codes = dict(response.partitions)
            deleted = {stop.tp: codes.get(stop.tp, 0) for stop in request.partitions if stop.delete}
            if deleted:
                self.put(StopReplicaAnswered(broker_id, request.broker_epoch, deleted))

    def summary(self) -> dict[str, Any]:
        """The term's part of `ZooKeeperController.summary`: all but the partitions one by one."""
        context = self.machine.context
        return {
            "state": self.state,
            "queue_size": self.queue_size,
            "backlog": {str(id_): count for id_, count in self._channels.backlog().items()},
            "brokers": {str(id_): broker.epoch for id_, broker in context.brokers.items()},
            "shutting_down": sorted(context.shutting_down),
            "topics_marked_for_deletion": sorted(context.deletions),
            "topics_ineligible_for_deletion": dict(context.ineligible),
            "reassignments": [
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "replicas": list(context.assignments[tp].replicas),
                    "adding_replicas": list(context.assignments[tp].adding),
                    "removing_replicas": list(context.assignments[tp].removing),
                }
                for tp in context.reassigning
            ],
            "offline_partition_count": len(context.unavailable),
            "preferred_replica_imbalance_count": self.machine.preferred_imbalance_count(),
            "unclean_elections": context.unclean_elections,
            "topic_count": len(context.topics),
            "partition_count": len(context.assignments),
        }

    def partitions(self) -> list[dict[str, Any]]:
        """Every partition with the states of it and of its replicas (B6, B7)."""
        context = self.machine.context
        return [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "state": context.partition_status(tp).value,
                "leader": state.leader,
                "leader_epoch": state.leader_epoch,
                "isr": list(state.isr),
                "replicas": list(context.replicas(tp)),
                "replica_states": {
                    str(broker): context.replica_status(tp, broker).value
                    for broker in context.replicas(tp)
                },
                "zk_version": state.zk_version,
                "controller_epoch": state.controller_epoch,
            }
            for tp, state in context.leadership.items()
        ]
