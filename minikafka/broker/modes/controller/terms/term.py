"""One term of the controller, from its election to its end: the queue of events, and the host of the machine.

The queue holds signals and events. A signal means that a part of ZooKeeper must be read again. An event carries its
data. One task handles the queue in order. For a signal, the task reads ZooKeeper and makes events of the content. The
task passes each event to the machine and carries out the commands that the machine returns. The last command may be a
question: a read or write whose outcome the machine needs. The machine gets this outcome before the next item of the
queue. A signal is in the queue at most once, and each read sets its watch first, so that no change is
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
    StaleSession,
    code_name,
)
from minikafka.base.model import (
    Broker,
    BrokerId,
    ControllerRequest,
    ControllerResponse,
    LeaderAndIsr,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    TopicPartition,
)
from minikafka.base.ports import Clock, Gate, Ledger, ZooKeeper
from minikafka.broker.host import AwaitedCommands, AwaitingHost
from minikafka.broker.ledger.record import ANSWER, DECISION, EVENT, REQUEST, RESPONSE, STEP
from minikafka.broker.ledger.requests import request_lines, response_line
from minikafka.broker.modes.controller.terms.controllership import Controllership
from minikafka.broker.modes.controller.terms.lines import (
    answer_lines,
    decision_lines,
    event_lines,
    step_lines,
)
from minikafka.broker.modes.controller.terms.reader import ClusterReader, Signal
from minikafka.broker.modes.controller.terms.state_writes import write_states
from minikafka.broker.modes.controller.terms.store import ControllerStore
from minikafka.deciders.controller.commands import (
    AnnounceStep,
    Command,
    DeleteDeletionMarks,
    DeleteIsrChanges,
    DeleteLogDirEvents,
    DeletePreferredElection,
    DeleteTopicNodes,
    ElectionSettings,
    GiveTopicIds,
    ReadElectionSettings,
    ReadLeaderAndIsr,
    SendRequest,
    StartChannel,
    StopChannel,
    TrimReassignments,
    UnwatchStates,
    WatchStates,
    WriteAssignments,
    WriteLeaderAndIsr,
    WrittenStates,
)
from minikafka.deciders.controller.events import (
    ControlledShutdownRequested,
    ElectionRequested,
    Event,
    LeaderAndIsrAnswered,
    ReassignmentsRequested,
    StopReplicaAnswered,
)
from minikafka.deciders.controller.machine import ControllerMachine
from minikafka.deciders.decider import Answer
from minikafka.zookeeper.nodes import admin_requests, layout, notifications, partition_states

logger = logging.getLogger(__name__)


class RequestChannels(Protocol):
    """The ordered queues of requests to brokers (`broker/rpc/channels.py`)."""

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
    """The host of one `ControllerMachine`, from the election until the controller resigns or `end` is called.

    `holds_node`: a function that sets the watch on `/controller`, reads the node, and returns True if this session
    still owns the node.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        store: ControllerStore,
        channels: RequestChannels,
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
        self._queue: deque[Signal | Event] = deque()
        self._filled = asyncio.Event()
        self.reader = ClusterReader(zookeeper, store, self.put)
        self._callers: dict[int, asyncio.Future[Any]] = {}
        """Caller -> its response, for which `ask` waits."""
        self._last_caller = 0
        self._host = AwaitingHost(self._decide, self._commands(), self._raise_if_over)

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

    def backlog(self) -> dict[BrokerId, int]:
        """Return the number of requests that each broker has not answered yet."""
        return self._channels.backlog()

    def set_broker_defaults(self, config: BrokerConfig) -> None:
        """Replace the broker settings that topics inherit."""
        self._store.set_broker_defaults(config)

    # The queue.

    def put(self, item: Signal | Event) -> None:
        """Add an item to the queue. A signal that is already in the queue is not added again."""
        if self.over or (isinstance(item, Signal) and item in self._queue):
            return
        self._queue.append(item)
        self._filled.set()

    def new_caller(self) -> int:
        """Return the `caller` of a new request. The ledger shows it in the lines of the request and its answer."""
        self._last_caller += 1
        return self._last_caller

    async def ask(
        self, request: ControlledShutdownRequested | ReassignmentsRequested | ElectionRequested
    ) -> Any:
        """Queue a request; return the response of the machine. Raises KafkaError NOT_CONTROLLER if the term ends."""
        assert isinstance(request.caller, int)
        response: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._callers[request.caller] = response
        self.put(request)
        try:
            return await self.controllership.wait_for(response)
        finally:
            del self._callers[request.caller]

    def end(self) -> None:
        """End the term at once: send nothing more, empty the queue, answer callers with NOT_CONTROLLER (R9, R13)."""
        if self.over:
            return
        # First of all: each later step of this term checks `over`, and no request may be sent after the channels stop.
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
            # `end` may have set `_filled` just before it was cleared.
            if not self.over:
                await self._filled.wait()

    async def process_queue(self) -> None:
        """Process queued items, and the items that they add to the queue, until the queue is empty."""
        while self._queue:
            await self._process(self._queue.popleft())

    async def _process(self, item: Signal | Event) -> None:
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

    async def handle(self, event: Event) -> None:
        """Pass one event to the machine, and carry out its commands up to the end of its procedure."""
        self._raise_if_over()
        self._events += 1
        self._cause = self._session.cause = f"{self.machine.context.epoch}-{self._events}"
        self._note(EVENT, event_lines(event))
        await self._host.handle(event)

    def _decide(self, event: Event) -> list[Command]:
        """Pass the event to the machine, write its decisions to the ledger, and return its commands."""
        commands = self.machine.handle(event, self._clock.now(), self._cause)
        self._note(DECISION, decision_lines(self.machine.drain_decisions()))
        return commands

    def _note(self, kind: str, lines: Iterable[dict[str, Any]]) -> None:
        for fields in lines:
            self._ledger.record(kind, self._cause, fields)

    def _raise_if_over(self) -> None:
        if self.over or self._zookeeper.generation != self.generation:
            raise StaleSession("the term is over")

    # Commands.

    def _commands(self) -> AwaitedCommands:
        """Return the table of the commands: the method that carries each out. That of a question returns its value."""
        return {
            StartChannel: self._start_channel,
            StopChannel: self._stop_channel,
            SendRequest: self._send_request,
            DeleteIsrChanges: self._delete_isr_changes,
            DeleteLogDirEvents: self._delete_log_dir_events,
            DeleteDeletionMarks: self._delete_deletion_marks,
            DeletePreferredElection: self._delete_preferred_election,
            TrimReassignments: self._trim_reassignments,
            WatchStates: self._watch_states,
            UnwatchStates: self._unwatch_states,
            AnnounceStep: self._announce_step,
            Answer: self._answer,
            WriteLeaderAndIsr: self._write_leader_and_isr,
            ReadLeaderAndIsr: self._read_leader_and_isr,
            ReadElectionSettings: self._read_election_settings,
            WriteAssignments: self._write_assignments,
            DeleteTopicNodes: self._delete_topic_nodes,
            GiveTopicIds: self._give_topic_ids,
        }

    async def _start_channel(self, command: StartChannel) -> None:
        self._channels.add(command.broker)

    async def _stop_channel(self, command: StopChannel) -> None:
        self._channels.remove(command.broker_id)

    async def _delete_isr_changes(self, command: DeleteIsrChanges) -> None:
        paths = notifications.paths(layout.ISR_CHANGES, command.names)
        await self._session.delete_nodes(paths)

    async def _delete_log_dir_events(self, command: DeleteLogDirEvents) -> None:
        paths = notifications.paths(layout.LOG_DIR_EVENTS, command.names)
        await self._session.delete_nodes(paths)

    async def _delete_deletion_marks(self, command: DeleteDeletionMarks) -> None:
        await self._session.delete_nodes(admin_requests.deletion_paths(command.topics))

    async def _delete_preferred_election(self, _: DeletePreferredElection) -> None:
        await self._session.delete_nodes([layout.PREFERRED_ELECTION])
        # The node may have been written again before its deletion.
        self.put(Signal.PREFERRED_ELECTION)

    async def _trim_reassignments(self, command: TrimReassignments) -> None:
        await self._store.trim_reassignments(command.finished)
        # Targets that were written meanwhile are still in the node (R60).
        self.put(Signal.REASSIGNMENTS)

    async def _watch_states(self, command: WatchStates) -> None:
        await self.reader.watch_states(command.partitions)

    async def _unwatch_states(self, command: UnwatchStates) -> None:
        await self.reader.unwatch_states(command.partitions)

    async def _announce_step(self, command: AnnounceStep) -> None:
        self._note(STEP, step_lines(command))
        await self._gate.reached(command.operation, command.step)

    async def _write_leader_and_isr(self, question: WriteLeaderAndIsr) -> WrittenStates:
        return await write_states(self._session, question.states)

    async def _read_leader_and_isr(
        self, question: ReadLeaderAndIsr
    ) -> dict[TopicPartition, LeaderAndIsr]:
        return await partition_states.read(self._session, question.partitions, self._session.faults)

    async def _read_election_settings(
        self, question: ReadElectionSettings
    ) -> dict[str, ElectionSettings]:
        return await self._store.read_election_settings(question.topics)

    async def _write_assignments(self, question: WriteAssignments) -> dict[str, str]:
        return await self._store.write_assignments(question.topics, question.submitted)

    async def _delete_topic_nodes(self, question: DeleteTopicNodes) -> dict[str, str]:
        return await self._store.delete_topics(question.topics)

    async def _give_topic_ids(self, question: GiveTopicIds) -> dict[str, bytes]:
        return await self._store.give_topic_ids(question.topics)

    # Requests to brokers.

    async def _send_request(self, command: SendRequest) -> None:
        # A controller without a lease may have been replaced: then its requests must not reach a broker (R9).
        await self._wait_for_lease()
        self._channels.send(command.broker_id, command.request, self._on_response)
        to = {"to": command.broker_id, "queued": self._channels.waiting(command.broker_id)}
        self._note(REQUEST, (to | fields for fields in request_lines(command.request)))

    async def _wait_for_lease(self) -> None:
        """Wait until the session's lease proves that the session has not expired.

        Every answered ZooKeeper request renews the lease. A controller that holds its lease may still have been
        replaced, by a broker whose connections it refuses.
        """
        while not self._zookeeper.lease_valid():
            await self._session.attached()
            await self._session.steady(lambda: self._zookeeper.exists(layout.CONTROLLER_EPOCH))
            self._raise_if_over()

    async def _answer(self, command: Answer) -> None:
        self._note(ANSWER, answer_lines(command))
        assert isinstance(command.caller, int)
        waiting = self._callers.get(command.caller)
        if waiting is not None and not waiting.done():
            waiting.set_result(command.response)

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
