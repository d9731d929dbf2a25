"""The controller's state machine, without I/O, over an in-memory ZooKeeper.

`World` passes events to the machine and carries out the commands at once, without an event loop. ZooKeeper reads and
writes go to `Znodes`. Requests are recorded, and the invariants of the `Context` are checked after every step.
"""

from __future__ import annotations

import re
from collections.abc import (
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
)
from dataclasses import replace
from typing import Any

from support.brokers.controller_bench import encode_preferred_election
from support.brokers.endpoints import endpoints

from minikafka.base.errors import BadVersion, ServerVerdict
from minikafka.base.model import (
    Broker,
    LeaderAndIsr,
    LeaderAndIsrRequest,
    PartitionResult,
    ReplicaAssignment,
    StopReplicaRequest,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.base.ports import Create, Set
from minikafka.deciders.controller.commands import (
    NO_NODE,
    AnnounceStep,
    Command,
    DeleteDeletionMarks,
    DeletePreferredElection,
    DeleteTopicNodes,
    ElectionSettings,
    GiveTopicIds,
    Question,
    ReadElectionSettings,
    ReadLeaderAndIsr,
    SendRequest,
    ShutdownResponse,
    TrimReassignments,
    WriteAssignments,
    WriteLeaderAndIsr,
    WrittenStates,
)
from minikafka.deciders.controller.context import Context
from minikafka.deciders.controller.events import (
    BrokersChanged,
    BrokerSuspected,
    ControlledShutdownRequested,
    ControllerElected,
    DeletionsChanged,
    ElectionRequested,
    Event,
    IsrChanged,
    ReassignmentsRequested,
    ReassignmentsSubmitted,
    StopReplicaAnswered,
    SuspicionEnded,
    TopicImage,
    TopicsChanged,
)
from minikafka.deciders.controller.machine import ControllerMachine, ControllerSettings
from minikafka.deciders.controller.states import PartitionStatus, ReplicaStatus
from minikafka.deciders.decider import Answer, Outcome
from minikafka.simulation.zookeeper import Znodes
from minikafka.zookeeper.nodes import layout

Request = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
DEFAULTS = ControllerSettings(delete_topic_enable=True, leader_imbalance_per_broker_percentage=10)
ID = b"0123456789abcdef"
STATE_PATH = re.compile(r"/brokers/topics/(?P<topic>[^/]+)/partitions/(?P<partition>\d+)/state")


def broker(broker_id: int, epoch: int = 1) -> Broker:
    return Broker(
        broker_id, endpoints("127.0.0.1", 9092 + broker_id, "127.0.0.1", 19092 + broker_id), epoch
    )


def image(*replica_lists: list[int]) -> TopicImage:
    """Return the TopicImage of a topic. The i-th list has the replicas of partition i."""
    return TopicImage(
        ID,
        {i: ReplicaAssignment(tuple(replicas)) for i, replicas in enumerate(replica_lists)},
    )


def state(
    leader: int, isr: list[int], *, epoch: int = 0, version: int = 0, controller: int = 1
) -> LeaderAndIsr:
    return LeaderAndIsr(leader, epoch, tuple(isr), controller, version)


class StateNodes(MutableMapping[TopicPartition, LeaderAndIsr]):
    """The state nodes of partitions. Setting an item writes the node unconditionally, as an external tool would."""

    def __init__(self, ensemble: Znodes | None = None) -> None:
        self.ensemble = ensemble or Znodes()

    def __getitem__(self, tp: TopicPartition) -> LeaderAndIsr:
        node = self.ensemble.nodes[layout.state_path(tp)]
        return layout.decode_state(node.data, node.version)

    def __setitem__(self, tp: TopicPartition, leadership: LeaderAndIsr) -> None:
        path = layout.state_path(tp)
        self.ensemble.put(path, layout.encode_state(leadership))
        self.ensemble.nodes[path].version = leadership.state_version

    def __delitem__(self, tp: TopicPartition) -> None:
        remove(self.ensemble, layout.partition_path(tp))

    def __iter__(self) -> Iterator[TopicPartition]:
        for path in list(self.ensemble.nodes):
            if match := STATE_PATH.fullmatch(path):
                yield TopicPartition(match["topic"], int(match["partition"]))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def write(self, tp: TopicPartition, proposed: LeaderAndIsr) -> int:
        """Write a state conditionally on its `state_version`, as the controller does; return the new version.

        Raises ServerVerdict.
        """
        path, data = layout.state_path(tp), layout.encode_state(proposed)
        if proposed.state_version != NO_NODE:
            _, stat = self.ensemble.apply(Set(path, data, proposed.state_version))
        else:
            if layout.partition_path(tp) not in self.ensemble.nodes:
                self.ensemble.put(layout.partition_path(tp))
            _, stat = self.ensemble.apply(Create(path, data))
        assert stat is not None
        return stat.version


class TopicNodes(MutableMapping[str, TopicImage]):
    """The topic nodes by topic name. Nodes that hold no assignment and are only parents of other nodes are left out."""

    def __init__(self, ensemble: Znodes) -> None:
        self.ensemble = ensemble

    def __getitem__(self, topic: str) -> TopicImage:
        return TopicImage(*layout.decode_topic(self.ensemble.nodes[layout.topic_path(topic)].data))

    def __setitem__(self, topic: str, made: TopicImage) -> None:
        data = layout.encode_topic(made.topic_id, made.assignment)
        self.ensemble.put(layout.topic_path(topic), data)

    def __delitem__(self, topic: str) -> None:
        remove(self.ensemble, layout.topic_path(topic))

    def __iter__(self) -> Iterator[str]:
        names = self.ensemble.children(layout.TOPICS)
        return iter([n for n in names if self.ensemble.nodes[layout.topic_path(n)].data])

    def __len__(self) -> int:
        return sum(1 for _ in self)


def remove(ensemble: Znodes, path: str) -> None:
    """Delete a node and everything below it."""
    for name in ensemble.children(path):
        remove(ensemble, f"{path}/{name}")
    ensemble.delete(path)


def write_states(nodes: StateNodes, states: Mapping[TopicPartition, LeaderAndIsr]) -> WrittenStates:
    """Write each state conditionally on its version; return the accepted, conflicting and failed writes."""
    ok: dict[TopicPartition, int] = {}
    conflicts: list[TopicPartition] = []
    failed: dict[TopicPartition, str] = {}
    for tp, proposed in states.items():
        try:
            ok[tp] = nodes.write(tp, proposed)
        except BadVersion:
            conflicts.append(tp)
        except ServerVerdict as verdict:
            failed[tp] = type(verdict).__name__
    return WrittenStates(ok, tuple(conflicts), failed)


def run_steps(nodes: StateNodes, steps: Generator[Any, Any, Any]) -> Any:
    """Run one generator of a state machine to its end, with `nodes` as ZooKeeper, and return its result."""
    try:
        question = next(steps)
        while True:
            if isinstance(question, WriteLeaderAndIsr):
                value: Any = write_states(nodes, question.states)
            else:
                assert isinstance(question, ReadLeaderAndIsr | ReadElectionSettings)
                value = read_of(nodes, question, {})
            question = steps.send(value)
    except StopIteration as end:
        return end.value


def read_of(
    nodes: StateNodes,
    question: ReadLeaderAndIsr | ReadElectionSettings,
    settings: Mapping[str, ElectionSettings],
) -> Mapping[Any, Any]:
    """Return the value of the outcome of a ZooKeeper read that the state machine requests."""
    if isinstance(question, ReadLeaderAndIsr):
        return {tp: nodes[tp] for tp in question.partitions if tp in nodes}
    default = ElectionSettings(False, 1)
    return {topic: settings.get(topic, default) for topic in question.topics}


def sent_to(commands: Iterable[Command], kind: type) -> dict[int, Any]:
    """Return, by broker id, the last request of this kind that was sent to the broker."""
    return {
        command.broker_id: command.request
        for command in commands
        if isinstance(command, SendRequest) and isinstance(command.request, kind)
    }


class World:
    """A controller's state machine and its ZooKeeper, for example `World(brokers=3).create("t", [0, 1, 2])`.

    `sent`: all requests so far, in order. `nodes` and `topics`: the state and topic nodes in ZooKeeper. `brokers`: the
    live brokers. `unclean`: the topics that allow unclean elections. `min_isr`: topic -> `min.insync.replicas`, if
    it is not 1.
    """

    def __init__(
        self,
        brokers: int = 3,
        epoch: int = 1,
        settings: ControllerSettings = DEFAULTS,
    ) -> None:
        self.brokers = {i: broker(i) for i in range(brokers)}
        self.ensemble = Znodes()
        for path in layout.PERSISTENT:
            self.ensemble.put(path)
        self.topics = TopicNodes(self.ensemble)
        self.nodes = StateNodes(self.ensemble)
        self.unclean: set[str] = set()
        self.min_isr: dict[str, int] = {}
        self.settings = settings
        self.crash_at = ""
        """The `operation.step` at which the controller dies, "" to let it live."""
        self.before_write: Callable[[WriteLeaderAndIsr], None] = lambda question: None
        self.commands: list[Command] = []
        self.writes: list[WriteLeaderAndIsr] = []
        self.now = 0
        self.start(epoch)

    @property
    def deletions(self) -> frozenset[str]:
        """Topics that are marked for deletion."""
        return frozenset(self.ensemble.children(layout.DELETE_TOPICS))

    @deletions.setter
    def deletions(self, topics: Iterable[str]) -> None:
        wanted = set(topics)
        for topic in self.deletions - wanted:
            self.ensemble.delete(layout.delete_topic_path(topic))
        for topic in wanted - self.deletions:
            self.ensemble.put(layout.delete_topic_path(topic))

    @property
    def submitted(self) -> dict[TopicPartition, tuple[int, ...]]:
        """Target replicas by partition in `/admin/reassign_partitions`; {} if there is no such node."""
        node = self.ensemble.nodes.get(layout.REASSIGN_PARTITIONS)
        return layout.decode_reassignments(node.data) if node else {}

    @submitted.setter
    def submitted(self, targets: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        self._write_admin_node(
            layout.REASSIGN_PARTITIONS, layout.encode_reassignments(targets) if targets else None
        )

    @property
    def elections(self) -> tuple[TopicPartition, ...] | None:
        """Partitions in `/admin/preferred_replica_election`, None if there is no such node."""
        node = self.ensemble.nodes.get(layout.PREFERRED_ELECTION)
        return tuple(layout.decode_preferred_election(node.data)) if node else None

    @elections.setter
    def elections(self, partitions: tuple[TopicPartition, ...] | None) -> None:
        data = None if partitions is None else encode_preferred_election(partitions)
        self._write_admin_node(layout.PREFERRED_ELECTION, data)

    def _write_admin_node(self, path: str, data: bytes | None) -> None:
        """Write the node at `path`, or delete the node if `data` is None."""
        if data is not None:
            self.ensemble.put(path, data)
        elif path in self.ensemble.nodes:
            self.ensemble.delete(path)

    def start(self, epoch: int, suspects: Mapping[int, int] | None = None) -> None:
        """Begin a new controller epoch: pass everything that ZooKeeper holds to a new state machine."""
        self.machine = ControllerMachine(0, epoch, self.settings)
        self.handle(
            ControllerElected(
                dict(self.brokers),
                dict(self.topics),
                dict(self.nodes),
                self.deletions,
                dict(self.submitted),
                self.elections,
                suspects or {},
            )
        )

    @property
    def context(self) -> Context:
        return self.machine.context

    @property
    def sent(self) -> list[tuple[int, Request]]:
        return [
            (command.broker_id, command.request)
            for command in self.commands
            if isinstance(command, SendRequest)
        ]

    def sent_to(self, broker_id: int, kind: type = object) -> list[Any]:
        return [
            request for to, request in self.sent if to == broker_id and isinstance(request, kind)
        ]

    def clear(self) -> World:
        self.commands.clear()
        self.writes.clear()
        return self

    def handle(self, event: Event) -> World:
        self.now += 1
        commands = self.machine.handle(event, self.now)
        while True:
            if not self.carry_out(commands):
                return self
            validate(self.context)
            if not self.machine.is_busy:
                return self
            question = commands[-1]
            assert isinstance(question, Question)
            if isinstance(question, WriteLeaderAndIsr):
                self.writes.append(question)
                self.before_write(question)
            commands = self.machine.handle(
                Outcome(question.token, self.answer_of(question)), self.now
            )

    def carry_out(self, commands: list[Command]) -> bool:
        """Record the commands, and carry out the ZooKeeper writes that the state machine does not wait for.

        Return False if the controller died at the step `crash_at`.
        """
        for command in commands:
            if isinstance(command, AnnounceStep) and self.crash_at == (
                f"{command.operation}.{command.step}"
            ):
                self.crash_at = ""
                return False
            self.commands.append(command)
            if isinstance(command, TrimReassignments):
                asked = self.submitted
                self.submitted = {
                    tp: to for tp, to in asked.items() if command.finished.get(tp) != to
                }
            elif isinstance(command, DeletePreferredElection):
                self.elections = None
            elif isinstance(command, DeleteDeletionMarks):
                self.deletions -= set(command.topics)
        return True

    @property
    def steps(self) -> list[str]:
        return [
            f"{command.operation}.{command.step}"
            for command in self.commands
            if isinstance(command, AnnounceStep)
        ]

    def answer_of(self, question: Question) -> Any:
        """Carry out a ZooKeeper read or write for which the state machine waits; return the value of its outcome."""
        if isinstance(question, WriteLeaderAndIsr):
            return write_states(self.nodes, question.states)
        if isinstance(question, WriteAssignments):
            return self.write_assignments(question.topics)
        if isinstance(question, DeleteTopicNodes):
            return self.delete_topics(question.topics)
        if isinstance(question, GiveTopicIds):
            return self.give_topic_ids(question.topics)
        assert isinstance(question, ReadLeaderAndIsr | ReadElectionSettings)
        settings = {
            topic: ElectionSettings(topic in self.unclean, self.min_isr.get(topic, 1))
            for topic in self.topics
        }
        return read_of(self.nodes, question, settings)

    def write_assignments(
        self, topics: Mapping[str, Mapping[int, ReplicaAssignment | None]]
    ) -> dict[str, str]:
        """Change partitions in topic nodes; return the reason of failure for each topic that failed."""
        failed = {}
        for topic, changes in topics.items():
            if topic not in self.topics:
                failed[topic] = "the topic is gone"
                continue
            known = self.topics[topic]
            merged = {**known.assignment, **changes}
            kept = {number: replicas for number, replicas in merged.items() if replicas}
            self.topics[topic] = TopicImage(known.topic_id, kept)
        return failed

    def give_topic_ids(self, topics: Mapping[str, bytes | None]) -> dict[str, bytes]:
        """Write topic ids to the topic nodes; return the ids that were written.

        A topic whose id is None gets its name as id, padded to 16 bytes; a topic with state nodes is skipped instead.
        """
        given = {}
        for topic, topic_id in topics.items():
            if topic_id is None and any(tp.topic == topic for tp in self.nodes):
                continue
            given[topic] = topic_id or topic.encode().ljust(16)
            self.topics[topic] = TopicImage(given[topic], self.topics[topic].assignment)
        return given

    def delete_topics(self, topics: Iterable[str]) -> dict[str, str]:
        """Delete the nodes and deletion marks of the topics; return {}: no topic fails."""
        for topic in topics:
            del self.topics[topic]
            self.deletions -= {topic}
        return {}

    def reassign(
        self, targets: Mapping[TopicPartition, list[int] | None]
    ) -> dict[TopicPartition, PartitionResult]:
        """Request a reassignment, as an administrator does; return the controller's answer."""
        wanted = {tp: None if t is None else tuple(t) for tp, t in targets.items()}
        self.handle(ReassignmentsRequested(5, wanted))
        return self.answer()

    def submit(self, targets: Mapping[TopicPartition, list[int]]) -> World:
        """Write `/admin/reassign_partitions`, and pass ReassignmentsSubmitted to the state machine."""
        self.submitted = {tp: tuple(target) for tp, target in targets.items()}
        return self.handle(ReassignmentsSubmitted(dict(self.submitted)))

    def elect(
        self, partitions: list[TopicPartition] | None, *, unclean: bool = False
    ) -> dict[TopicPartition, PartitionResult]:
        chosen = None if partitions is None else tuple(partitions)
        self.handle(ElectionRequested(6, unclean, chosen))
        return self.answer()

    def answer(self) -> dict[TopicPartition, PartitionResult]:
        """Return the results in the latest answer to an administrator."""
        return dict(self._response())

    def _response(self) -> Any:
        return [one for one in self.commands if isinstance(one, Answer)][-1].response

    def expand(self, tp: TopicPartition, isr: list[int]) -> World:
        """Write a larger ISR, as the leader does, and pass IsrChanged to the state machine."""
        self.shrink(tp, isr)
        return self.handle(IsrChanged((), {tp: self.nodes[tp]}))

    def mark(self, *topics: str) -> World:
        """Mark topics for deletion, and pass DeletionsChanged to the state machine."""
        self.deletions |= set(topics)
        return self.handle(DeletionsChanged(self.deletions))

    def deleted(self, broker_id: int, *partitions: TopicPartition, error: int = 0) -> World:
        """Pass a broker's StopReplica response, with `error` for each partition (0: deleted), to the state machine."""
        epoch = self.brokers[broker_id].epoch
        return self.handle(StopReplicaAnswered(broker_id, epoch, dict.fromkeys(partitions, error)))

    def create(self, topic: str, *replica_lists: list[int]) -> World:
        self.topics[topic] = image(*replica_lists)
        return self.handle(TopicsChanged({topic: self.topics[topic]}))

    def kill(self, *broker_ids: int) -> World:
        for broker_id in broker_ids:
            del self.brokers[broker_id]
        return self.handle(BrokersChanged(dict(self.brokers)))

    def register(self, broker_id: int, epoch: int = 1) -> World:
        self.brokers[broker_id] = broker(broker_id, epoch)
        return self.handle(BrokersChanged(dict(self.brokers)))

    def suspect(self, broker_id: int) -> World:
        epoch = self.brokers[broker_id].epoch
        return self.handle(BrokerSuspected(broker_id, epoch, "refused"))

    def clear_of_suspicion(self, broker_id: int) -> World:
        return self.handle(SuspicionEnded(broker_id, self.brokers[broker_id].epoch))

    def shut_down(self, broker_id: int, epoch: int = 1) -> ShutdownResponse:
        self.handle(ControlledShutdownRequested(7, broker_id, epoch))
        response: ShutdownResponse = self._response()
        return response

    def shrink(self, tp: TopicPartition, isr: list[int]) -> None:
        """Write this ISR in the way in which the partition's leader writes a smaller ISR."""
        node = self.nodes[tp]
        self.nodes.write(tp, replace(node, isr=tuple(isr)))


def validate(context: Context) -> None:
    """Assert the invariants listed in `context.py`, and those of leaders and ISRs (I8).

    An ISR is not empty, and includes the leader if there is one. All ISR members are replicas of the partition, except
    during a reassignment or deletion.
    """
    for tp, leadership in context.leadership.items():
        replicas = context.assignments[tp].replicas
        assert leadership.isr, f"{tp} has an empty ISR"
        going = tp in context.reassigning or tp.topic in context.deletions
        assert going or set(leadership.isr) <= set(replicas), (
            f"{tp}: ISR is not within the assignment"
        )
        assert leadership.leader == -1 or leadership.leader in leadership.isr, (
            f"{tp}: leader is not in the ISR"
        )
        assert tp in context.led[leadership.leader]
    assert sum(map(len, context.led.values())) == len(context.leadership)
    waiting = {PartitionStatus.NEW, PartitionStatus.OFFLINE}
    assert set(context.unavailable) == {
        tp for tp, s in context.partition_statuses.items() if s in waiting
    }
    for tp, status in context.partition_statuses.items():
        assert tp in context.assignments
        assert tp in context.topics[tp.topic]
        if status is PartitionStatus.ONLINE:
            assert tp in context.leadership
    for replicas in context.replica_statuses.values():
        assert ReplicaStatus.NON_EXISTENT not in replicas.values()
        assert set(replicas) <= set(context.assignments)
