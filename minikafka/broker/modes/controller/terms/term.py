"""One term of the controller, from its election to its end: the queue of events, the machine and its effects.

The queue holds signals and events. A signal means that a part of ZooKeeper must be read again. An event carries its
data. One task handles the queue in order. For a signal, the task reads ZooKeeper and makes events of the content. The
task passes each event to the machine and carries out the effects that the machine returns. The last effect may be a
question: a read or write whose outcome the machine needs. The task passes this outcome to the machine before it
handles the next item. A signal is in the queue at most once, and each read sets its watch first, so that no change is
missed (S31). Invariant: a term that is `over` sends nothing to brokers or ZooKeeper.
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
    code_name,
)
from minikafka.base.model import (
    Broker,
    BrokerId,
    ControllerRequest,
    ControllerResponse,
    LeaderAndIsrRequest,
    StopReplicaRequest,
)
from minikafka.base.ports import Clock, Gate, Ledger, ZooKeeper
from minikafka.broker.cluster.controllership import Controllership
from minikafka.broker.modes.controller.terms.lines import (
    answer_lines,
    decision_lines,
    event_lines,
    step_lines,
)
from minikafka.broker.modes.controller.terms.reader import Reader, Signal
from minikafka.broker.modes.controller.terms.store import ControllerStore
from minikafka.controller.context import ReplicaStatus
from minikafka.controller.events import (
    AnswerAdmin,
    AnswerControlledShutdown,
    DeleteDeletionMarks,
    DeleteIsrChanges,
    DeleteLogDirEvents,
    DeletePreferredElection,
    DeleteTopicNodes,
    Effect,
    ElectionSettingsRead,
    Event,
    ExternalEvent,
    GiveTopicIds,
    LeaderAndIsrAnswered,
    LeaderAndIsrRead,
    Outcome,
    ReadElectionSettings,
    ReadLeaderAndIsr,
    SendRequest,
    StartChannel,
    StepReached,
    StopChannel,
    StopReplicaAnswered,
    TrimReassignments,
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
    """The ordered queues of requests to brokers (`rpc/channels.py`)."""

    def add(self, broker: Broker) -> None:
        """Open the channel to a registered broker."""

    def remove(self, broker_id: BrokerId) -> None:
        """Close the channel to a broker and drop its queued requests."""

    def send(
        self,
        broker_id: BrokerId,
        request: ControllerRequest,
        on_response: Callable[[BrokerId, ControllerRequest, ControllerResponse], None],
    ) -> None:
        """Queue a request; `on_response` is called with the broker's response."""

    def stop(self) -> None:
        """Close all channels at once."""

    def waiting(self, broker_id: BrokerId) -> int:
        """Return the number of requests that the broker has not answered yet."""

    def backlog(self) -> dict[BrokerId, int]:
        """Return the number of requests without a response, by broker id, for every channel (C39)."""


class Term:
    """The runner of one `ControllerMachine`, from the election until the controller resigns or `end` is called.

    `holds_node`: a function that sets the watch on `/controller`, reads the node, and returns True if this session
    still owns the node.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        store: ControllerStore,
        channels: Channels,
        clock: Clock,
        machine: ControllerMachine,
        holds_node: Callable[[], Awaitable[bool]],
        ledger: Ledger,
        gate: Gate,
    ) -> None:
        self.machine = machine
        self.controllership = Controllership()
        self.state = "ControllerChange"
        self._zookeeper = zookeeper
        self._store = store
        self._session = store.session
        self._channels = channels
        self._clock = clock
        self._holds_node = holds_node
        self._ledger = ledger
        self._gate = gate
        self._events = 0
        self._cause = ""
        self._queue: deque[Signal | ExternalEvent] = deque()
        self._filled = asyncio.Event()
        self.reader = Reader(zookeeper, store, self.put)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        """Ticket -> answer that a caller of `ask` waits for."""
        self._tickets = 0
        self._effects = self._effect_table()

    @property
    def over(self) -> bool:
        """True once the term has ended."""
        return self.controllership.has_ended

    @property
    def generation(self) -> int:
        """Number of the session that the term belongs to."""
        return self._session.generation

    @property
    def queue_size(self) -> int:
        """Number of signals and events in the queue."""
        return len(self._queue)

    def set_broker_defaults(self, config: BrokerConfig) -> None:
        """Replace the broker settings that topics inherit."""
        self._store.set_broker_defaults(config)

    # The queue.

    def put(self, item: Signal | ExternalEvent) -> None:
        """Add an item to the queue. A signal that is already in the queue is not added again."""
        if self.over or (isinstance(item, Signal) and item in self._queue):
            return
        self._queue.append(item)
        self._filled.set()

    async def ask(self, event: Callable[[int], ExternalEvent]) -> Any:
        """Queue the event `event(ticket)`; return the state machine's answer to this event. Raises KafkaError.

        `ticket` is a new number. The answer contains the same number to show which event is answered.
        """
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
        """End the term at once: send nothing more, empty the queue, answer callers with NOT_CONTROLLER (R9, R13)."""
        if self.over:
            return
        self.controllership.end()
        self._channels.stop()
        self._queue.clear()
        self._filled.set()

    async def run(self) -> None:
        """Load the cluster, then handle the queue until the term is over.

        Raises ControllerMoved, StaleSession, CoordinationError.
        """
        await self.handle(await self.reader.load())
        while not self.over:
            await self.process_queue()
            self.state = "Idle"
            self._filled.clear()
            if not self.over:
                await self._filled.wait()

    async def process_queue(self) -> None:
        """Process queued items, and the items that they add to the queue, until the queue is empty."""
        while self._queue:
            await self._process(self._queue.popleft())

    async def _process(self, item: Signal | ExternalEvent) -> None:
        self.state = item.value if isinstance(item, Signal) else type(item).__name__
        if not isinstance(item, Signal):
            await self.handle(item)
            return
        if item is Signal.CONTROLLER:
            if not await self._session.steady(self._holds_node):
                raise ControllerMoved("/controller names another broker or session")
            return
        for event in await self.reader.read(item):
            await self.handle(event)

    async def handle(self, event: ExternalEvent) -> None:
        """Pass one event to the machine, and carry out the effects that the machine returns.

        If the last effect has an outcome, pass the outcome to the machine too, which may return more effects.
        """
        self._raise_if_over()
        self._events += 1
        self._cause = self._session.cause = f"{self.machine.context.epoch}-{self._events}"
        self._note(EVENT, event_lines(event))
        effects = self._decide(event)
        while True:
            outcome = None
            for effect in effects:
                outcome = await self._effects[type(effect)](effect)
                self._raise_if_over()
            if outcome is None:
                return
            effects = self._decide(outcome)

    def _decide(self, event: Event) -> list[Effect]:
        """Pass the event to the machine, write its decisions to the ledger, and return its effects."""
        effects = self.machine.handle(event, self._clock.now(), self._cause)
        self._note(DECISION, decision_lines(self.machine.drain_decisions()))
        return effects

    def _note(self, kind: str, lines: Iterable[dict[str, Any]]) -> None:
        for fields in lines:
            self._ledger.record(kind, self._cause, fields)

    def _raise_if_over(self) -> None:
        if self.over or self._zookeeper.generation != self.generation:
            raise StaleSession("the term is over")

    # Effects.

    def _effect_table(self) -> dict[type, Callable[[Any], Awaitable[Outcome | None]]]:
        """Return the function that carries out each type of effect, and returns the outcome of a question."""
        store, session, reader = self._store, self._session, self.reader
        return {
            SendRequest: self._send,
            StepReached: self._reach,
            StartChannel: self._start_channel,
            StopChannel: self._stop_channel,
            AnswerControlledShutdown: self._answer,
            AnswerAdmin: self._answer,
            WriteLeaderAndIsr: lambda effect: store.write_states(effect.states),
            ReadLeaderAndIsr: self._read_states,
            ReadElectionSettings: self._read_election_settings,
            WriteAssignments: lambda effect: store.write_assignments(
                effect.topics, effect.submitted
            ),
            DeleteTopicNodes: lambda effect: store.delete_topics(effect.topics),
            GiveTopicIds: lambda effect: store.give_topic_ids(effect.topics),
            DeleteIsrChanges: lambda effect: session.delete_nodes(
                notifications.paths(notifications.ISR_CHANGES, effect.names)
            ),
            DeleteLogDirEvents: lambda effect: session.delete_nodes(
                notifications.paths(notifications.LOG_DIR_FAILURES, effect.names)
            ),
            DeleteDeletionMarks: lambda effect: session.delete_nodes(
                admin_requests.deletion_paths(effect.topics)
            ),
            DeletePreferredElection: self._delete_preferred_election,
            TrimReassignments: self._trim_reassignments,
            WatchStates: lambda effect: reader.watch_states(effect.partitions),
            UnwatchStates: lambda effect: reader.unwatch_states(effect.partitions),
        }

    async def _start_channel(self, effect: StartChannel) -> None:
        self._channels.add(effect.broker)

    async def _stop_channel(self, effect: StopChannel) -> None:
        self._channels.remove(effect.broker_id)

    async def _read_states(self, effect: ReadLeaderAndIsr) -> LeaderAndIsrRead:
        return LeaderAndIsrRead(await self._store.read_states(effect.partitions))

    async def _read_election_settings(self, effect: ReadElectionSettings) -> ElectionSettingsRead:
        return ElectionSettingsRead(await self._store.read_election_settings(effect.topics))

    async def _delete_preferred_election(self, effect: DeletePreferredElection) -> None:
        await self._session.delete_nodes([admin_requests.PREFERRED_ELECTION])
        self.put(Signal.PREFERRED_ELECTION)

    async def _trim_reassignments(self, effect: TrimReassignments) -> None:
        await self._store.trim_reassignments(effect.finished)
        self.put(Signal.REASSIGNMENTS)

    async def _reach(self, effect: StepReached) -> None:
        self._note(STEP, step_lines(effect))
        await self._gate.reached(effect.operation, effect.step)

    async def _send(self, effect: SendRequest) -> None:
        await self._wait_for_lease()
        self._channels.send(effect.broker_id, effect.request, self._on_response)
        to = {"to": effect.broker_id, "queued": self._channels.waiting(effect.broker_id)}
        self._note(REQUEST, (to | fields for fields in request_lines(effect.request)))

    async def _wait_for_lease(self) -> None:
        """Wait until the session's lease proves that the session has not expired.

        Every answered ZooKeeper request renews the lease. A controller that holds its lease may still have been
        replaced, by a broker whose connections it refuses.
        """
        while not self._zookeeper.lease_valid():
            await self._session.attached()
            await self._session.steady(lambda: self._zookeeper.exists(election.EPOCH))
            self._raise_if_over()

    async def _answer(self, effect: AnswerControlledShutdown | AnswerAdmin) -> None:
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
        """Record a broker's response; also queue an event if the machine needs the response (R16)."""
        fields = {"from": broker_id, **response_line(request, response)}
        self._ledger.record(RESPONSE, request.cause, fields)
        if response.error:
            logger.warning(
                "broker %d answered %s with error %s",
                broker_id,
                type(request).__name__,
                code_name(response.error),
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
        """Return the controller's state, the cluster's counts, and the deletions and reassignments in progress."""
        context = self.machine.context
        to_delete = context.replicas_to_delete()
        return {
            "state": self.state,
            "queue_size": self.queue_size,
            "backlog": {str(id_): count for id_, count in self._channels.backlog().items()},
            "brokers": {str(id_): broker.epoch for id_, broker in context.brokers.items()},
            "shutting_down": sorted(context.shutting_down),
            "suspects": sorted(context.suspects),
            "suspicions": context.suspicions,
            "false_suspicions": context.false_suspicions,
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
            "unclean_elections_of": {
                str(tp): count for tp, count in context.unclean_elections_of.items()
            },
            "topic_count": len(context.topics),
            "partition_count": len(context.assignments),
            "replicas_to_delete": len(to_delete),
            "replicas_ineligible_for_deletion": to_delete.count(ReplicaStatus.DELETION_INELIGIBLE),
        }
