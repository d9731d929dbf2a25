"""A world for the controller machine: state nodes in a dict, requests in a list, and the picture
checked after every step.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import replace
from typing import Any

from support.endpoints import endpoints

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
from minikafka.controller.context import Context, PartitionStatus, ReplicaStatus
from minikafka.controller.events import (
    NO_NODE,
    AnswerAdmin,
    AnswerControlledShutdown,
    AssignmentsWritten,
    BrokersChanged,
    ControlledShutdownRequested,
    ControllerElected,
    DeleteDeletionMarks,
    DeletePreferredElection,
    DeleteTopicNodes,
    DeletionsChanged,
    Effect,
    ElectionRequested,
    ExternalEvent,
    GiveTopicIds,
    IsrChanged,
    LeaderAndIsrRead,
    LeaderAndIsrWritten,
    Outcome,
    ReadLeaderAndIsr,
    ReadUncleanSettings,
    ReassignmentsRequested,
    ReassignmentsSubmitted,
    SendRequest,
    StepReached,
    StopReplicaAnswered,
    TopicIdsGiven,
    TopicImage,
    TopicNodesDeleted,
    TopicsChanged,
    TrimReassignments,
    UncleanSettingsRead,
    WriteAssignments,
    WriteLeaderAndIsr,
)
from minikafka.controller.machine import ControllerMachine, ControllerSettings

Request = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


def broker(broker_id: int, epoch: int = 1) -> Broker:
    return Broker(
        broker_id, endpoints("127.0.0.1", 9092 + broker_id, "127.0.0.1", 19092 + broker_id), epoch
    )


def image(*replica_lists: list[int]) -> TopicImage:
    """A topic whose partition i has the i-th list as its replicas."""
    return TopicImage(
        b"0123456789abcdef",
        {i: ReplicaAssignment(tuple(replicas)) for i, replicas in enumerate(replica_lists)},
    )


def state(
    leader: int, isr: list[int], *, epoch: int = 0, version: int = 0, controller: int = 1
) -> LeaderAndIsr:
    return LeaderAndIsr(leader, epoch, tuple(isr), controller, version)


def answers(
    context: Context, nodes: dict[TopicPartition, LeaderAndIsr], question: Any, world: Any = None
) -> Outcome:
    """What a healthy ZooKeeper says."""
    if isinstance(question, WriteLeaderAndIsr):
        ok, conflicts, failed = {}, [], {}
        for tp, proposed in question.states.items():
            there = nodes.get(tp)
            if proposed.zk_version == NO_NODE and there is not None:
                failed[tp] = "the node exists"
            elif proposed.zk_version != NO_NODE and there is None:
                failed[tp] = "no node"
            elif there is not None and there.zk_version != proposed.zk_version:
                conflicts.append(tp)
            else:
                version = proposed.zk_version + 1
                nodes[tp] = replace(proposed, zk_version=version)
                ok[tp] = version
        return LeaderAndIsrWritten(ok, tuple(conflicts), failed)
    if isinstance(question, ReadLeaderAndIsr):
        return LeaderAndIsrRead({tp: nodes[tp] for tp in question.partitions if tp in nodes})
    if isinstance(question, WriteAssignments):
        return AssignmentsWritten(world.write_assignments(question.topics))
    if isinstance(question, DeleteTopicNodes):
        return TopicNodesDeleted(world.delete_topics(question.topics))
    if isinstance(question, GiveTopicIds):
        return TopicIdsGiven(world.give_topic_ids(question.topics))
    assert isinstance(question, ReadUncleanSettings)
    unclean = world.unclean if world else set()
    return UncleanSettingsRead({topic: topic in unclean for topic in question.topics})


def run_steps(
    context: Context, nodes: dict[TopicPartition, LeaderAndIsr], steps: Generator[Any, Any, Any]
) -> Any:
    """Drive one procedure of a state machine to its end; its result."""
    try:
        question = next(steps)
        while True:
            question = steps.send(answers(context, nodes, question))
    except StopIteration as end:
        return end.value


def sent_to(effects: Iterable[Effect], kind: type) -> dict[int, Any]:
    """Broker to the request of this kind that it is sent; the last one, if it is sent several."""
    return {
        effect.broker_id: effect.request
        for effect in effects
        if isinstance(effect, SendRequest) and isinstance(effect.request, kind)
    }


class World:
    """`World(brokers=3).create("t", [[0, 1, 2]])`, then events; `sent` holds all requests so far, in order."""

    def __init__(
        self,
        brokers: int = 3,
        epoch: int = 1,
        settings: ControllerSettings = ControllerSettings(),  # noqa: B008 (it is frozen)
    ) -> None:
        self.brokers = {i: broker(i) for i in range(brokers)}
        self.topics: dict[str, TopicImage] = {}
        self.nodes: dict[TopicPartition, LeaderAndIsr] = {}
        self.unclean: set[str] = set()
        self.deletions: frozenset[str] = frozenset()
        self.submitted: dict[TopicPartition, tuple[int, ...]] = {}
        """What `/admin/reassign_partitions` asks for."""
        self.elections: tuple[TopicPartition, ...] | None = None
        self.settings = settings
        self.crash_at = ""
        """The controller dies when it reaches this `operation.step`."""
        self.before_write: Callable[[WriteLeaderAndIsr], None] = lambda question: None
        self.effects: list[Effect] = []
        self.writes: list[WriteLeaderAndIsr] = []
        self.now = 0
        self.start(epoch)

    def start(self, epoch: int) -> None:
        """A new controller epoch that reads what is in ZooKeeper."""
        self.machine = ControllerMachine(0, epoch, self.settings)
        self.handle(
            ControllerElected(
                dict(self.brokers),
                dict(self.topics),
                dict(self.nodes),
                self.deletions,
                dict(self.submitted),
                self.elections,
            )
        )

    @property
    def context(self) -> Context:
        return self.machine.context

    @property
    def sent(self) -> list[tuple[int, Request]]:
        return [
            (effect.broker_id, effect.request)
            for effect in self.effects
            if isinstance(effect, SendRequest)
        ]

    def sent_to(self, broker_id: int, kind: type = object) -> list[Any]:
        return [
            request for to, request in self.sent if to == broker_id and isinstance(request, kind)
        ]

    def clear(self) -> World:
        self.effects.clear()
        self.writes.clear()
        return self

    def handle(self, event: ExternalEvent) -> World:
        self.now += 1
        effects = self.machine.handle(event, self.now)
        while True:
            if not self.carry_out(effects):
                return self
            validate(self.context)
            if not self.machine.is_busy:
                return self
            question = effects[-1]
            if isinstance(question, WriteLeaderAndIsr):
                self.writes.append(question)
                self.before_write(question)
            effects = self.machine.handle(
                answers(self.context, self.nodes, question, self), self.now
            )

    def carry_out(self, effects: list[Effect]) -> bool:
        """Keep the effects, and do in ZooKeeper what they say; False when the controller died of it."""
        for effect in effects:
            if isinstance(effect, StepReached) and self.crash_at == (
                f"{effect.operation}.{effect.step}"
            ):
                self.crash_at = ""
                return False
            self.effects.append(effect)
            if isinstance(effect, TrimReassignments):
                for tp, target in effect.finished.items():
                    if self.submitted.get(tp) == target:
                        del self.submitted[tp]
            elif isinstance(effect, DeletePreferredElection):
                self.elections = None
            elif isinstance(effect, DeleteDeletionMarks):
                self.deletions -= set(effect.topics)
        return True

    @property
    def steps(self) -> list[str]:
        return [
            f"{effect.operation}.{effect.step}"
            for effect in self.effects
            if isinstance(effect, StepReached)
        ]

    def write_assignments(
        self, topics: Mapping[str, Mapping[int, ReplicaAssignment | None]]
    ) -> dict[str, str]:
        failed = {}
        for topic, changes in topics.items():
            known = self.topics.get(topic)
            if known is None:
                failed[topic] = "the topic is gone"
                continue
            merged = {**known.assignment, **changes}
            kept = {number: replicas for number, replicas in merged.items() if replicas}
            self.topics[topic] = TopicImage(known.topic_id, kept)
        return failed

    def give_topic_ids(self, topics: Mapping[str, bytes | None]) -> dict[str, bytes]:
        """New ones are the topic's name, padded; a topic with partitions gets none."""
        given = {}
        for topic, topic_id in topics.items():
            if topic_id is None and any(tp.topic == topic for tp in self.nodes):
                continue
            given[topic] = topic_id or topic.encode().ljust(16)
            self.topics[topic] = TopicImage(given[topic], self.topics[topic].assignment)
        return given

    def delete_topics(self, topics: Iterable[str]) -> dict[str, str]:
        for topic in topics:
            del self.topics[topic]
            for tp in [tp for tp in self.nodes if tp.topic == topic]:
                del self.nodes[tp]
            self.deletions -= {topic}
        return {}

    def reassign(
        self, targets: Mapping[TopicPartition, list[int] | None]
    ) -> dict[TopicPartition, PartitionResult]:
        """What the administrator hears."""
        wanted = {tp: None if t is None else tuple(t) for tp, t in targets.items()}
        self.handle(ReassignmentsRequested(5, wanted))
        return self.answer()

    def submit(self, targets: Mapping[TopicPartition, list[int]]) -> World:
        """Write `/admin/reassign_partitions`."""
        self.submitted = {tp: tuple(target) for tp, target in targets.items()}
        return self.handle(ReassignmentsSubmitted(dict(self.submitted)))

    def elect(
        self, partitions: list[TopicPartition] | None, *, unclean: bool = False
    ) -> dict[TopicPartition, PartitionResult]:
        chosen = None if partitions is None else tuple(partitions)
        self.handle(ElectionRequested(6, unclean, chosen))
        return self.answer()

    def answer(self) -> dict[TopicPartition, PartitionResult]:
        """The latest answer to an administrator."""
        return dict([e for e in self.effects if isinstance(e, AnswerAdmin)][-1].results)

    def expand(self, tp: TopicPartition, isr: list[int]) -> World:
        """The leader takes followers into the ISR, and the controller's watch fires."""
        self.shrink(tp, isr)
        return self.handle(IsrChanged((), {tp: self.nodes[tp]}))

    def mark(self, *topics: str) -> World:
        """Mark for deletion."""
        self.deletions |= set(topics)
        return self.handle(DeletionsChanged(self.deletions))

    def deleted(self, broker_id: int, *partitions: TopicPartition, error: int = 0) -> World:
        """A broker answers that it deleted its replicas, or why it could not."""
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

    def shut_down(self, broker_id: int, epoch: int = 1) -> AnswerControlledShutdown:
        self.handle(ControlledShutdownRequested(7, broker_id, epoch))
        return [effect for effect in self.effects if isinstance(effect, AnswerControlledShutdown)][
            -1
        ]

    def shrink(self, tp: TopicPartition, isr: list[int]) -> None:
        """The partition's leader writes its ISR to ZooKeeper by itself."""
        node = self.nodes[tp]
        self.nodes[tp] = replace(node, isr=tuple(isr), zk_version=node.zk_version + 1)


def validate(context: Context) -> None:
    """The invariants of the picture (I8 and those of `context.py`)."""
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
