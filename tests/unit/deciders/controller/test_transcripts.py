"""What the controller decides, told in `transcripts/`: the inputs, and the commands of its state machine.

`given` is an input that prepares the scenario: its commands are not told.
`zookeeper` and `race` change ZooKeeper while the controller does not hear of it: at once, or just before its next
write. `show` shows what the controller knows; a state node that differs from it is shown, too. Warnings and errors
that the controller logs are lines that begin with `log`.

Each command of the controller's state machine is a line of text. Requests with the same content are one line, with the
ids of all brokers that receive the request. `0@7` is broker 0 in broker epoch 7; the epoch 1 is left out. `replicas` of
a partition are left out where they are equal to the ISR, and topic ids where they are the usual id of the tests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.brokers.endpoints import endpoints
from support.deciders.controller_world import DEFAULTS, ID, Request, World, broker, image, state
from support.deciders.transcripts import Input, play, scenarios

from minikafka.base.errors import ErrorCode
from minikafka.base.model import (
    Broker,
    ControllerResponse,
    LeaderAndIsr,
    LeaderAndIsrRequest,
    PartitionState,
    ReplicaAssignment,
    StopReplicaPartition,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.deciders.controller.commands import (
    NO_NODE,
    AnnounceStep,
    Command,
    DeleteDeletionMarks,
    DeleteIsrChanges,
    DeleteLogDirEvents,
    DeletePreferredElection,
    DeleteTopicNodes,
    GiveTopicIds,
    Question,
    ReadElectionSettings,
    ReadLeaderAndIsr,
    SendRequest,
    ShutdownResponse,
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
    AssignmentChanged,
    BrokersChanged,
    BrokerSuspected,
    DeletionsChanged,
    ElectionRequested,
    IsrChanged,
    LeaderAndIsrAnswered,
    LogDirsFailed,
    PreferredElectionSubmitted,
    ReassignmentsRequested,
    ReassignmentsSubmitted,
    RebalanceDue,
    SuspicionEnded,
    TopicImage,
    TopicsChanged,
    UncleanElectionEnabled,
)
from minikafka.deciders.controller.states import ReplicaStatus
from minikafka.deciders.decider import Answer


def lines_of(happened: Iterable[object]) -> Iterator[str]:
    """Yield the lines that tell commands. A text is a line already."""
    recipients: list[str] = []
    content = ""
    for one in happened:
        to = ""
        if isinstance(one, SendRequest):
            to = _broker(one.broker_id, one.request.broker_epoch)
            if to not in recipients and _request(one.request) == content:
                recipients.append(to)
                continue
        if recipients:
            yield _sent(recipients, content)
            recipients = []
        if isinstance(one, SendRequest):
            recipients, content = [to], _request(one.request)
        else:
            yield from [one] if isinstance(one, str) else _TOLD[type(one)](one)
    if recipients:
        yield _sent(recipients, content)


def _sent(recipients: list[str], content: str) -> str:
    kind, _, rest = content.partition(" ")
    return f"{kind} to {','.join(recipients)}: {rest}"


def _broker(broker_id: int, epoch: int) -> str:
    return str(broker_id) if epoch == 1 else f"{broker_id}@{epoch}"


def _request(request: Request) -> str:
    kind = type(request).__name__.removesuffix("Request")
    parts: list[str] = []
    if isinstance(request, UpdateMetadataRequest):
        live = f"live={','.join(map(_live, request.live_brokers))}"
        parts.append(live + _named("suspects", request.suspects))
    parts += [
        _stop(state) if isinstance(state, StopReplicaPartition) else _state(state)
        for state in request.partitions
    ]
    if isinstance(request, UpdateMetadataRequest | LeaderAndIsrRequest):
        parts += [f"id of {t}: {id_.decode().strip()}" for t, id_ in request.topic_ids if id_ != ID]
    return f"{kind} {'; '.join(parts)}"


def _live(broker: Broker) -> str:
    host = broker.endpoints[0].host
    return f"{broker.id}" if host == "127.0.0.1" else f"{broker.id} on host {host}"


def _state(state: PartitionState) -> str:
    return (
        f"{state.tp} leader={state.leader} isr={ids(state.isr)} epoch={state.leader_epoch}"
        f"{_named('replicas', state.replicas if state.replicas != state.isr else ())}"
        f"{_named('adding', state.adding)}{_named('removing', state.removing)}"
        f"{_named('offline', state.offline)}{' new' * state.is_new}"
    )


def _stop(stop: StopReplicaPartition) -> str:
    return f"{stop.tp} epoch={stop.leader_epoch}{' delete' * stop.delete}"


def _named(name: str, brokers: Iterable[int]) -> str:
    return f" {name}={ids(brokers)}" if brokers else ""


def ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


def leadership(state: LeaderAndIsr) -> str:
    return f"leader={state.leader} isr={ids(state.isr)} epoch={state.leader_epoch}"


def assignment(found: ReplicaAssignment) -> str:
    return (
        f"replicas={ids(found.replicas)}"
        f"{_named('adding', found.adding)}{_named('removing', found.removing)}"
    )


def _partitions(partitions: Iterable[TopicPartition]) -> str:
    return ",".join(map(str, partitions))


def _write(command: WriteLeaderAndIsr) -> Iterator[str]:
    yield "write " + "; ".join(
        f"{tp} {leadership(state)} "
        + (
            "as a new node"
            if state.state_version == NO_NODE
            else f"at version {state.state_version}"
        )
        for tp, state in command.states.items()
    )


def failures_of(value: object, question: object) -> Iterator[str]:
    """Yield the lines that tell which writes of a question failed: accepted writes need no line."""
    if isinstance(value, WrittenStates):
        if value.conflicts:
            yield f"not written, the version has changed: {_partitions(value.conflicts)}"
        for tp, reason in value.failed.items():
            yield f"not written: {tp}, {reason}"
    elif isinstance(question, WriteAssignments | DeleteTopicNodes):
        verb = "written" if isinstance(question, WriteAssignments) else "deleted"
        assert isinstance(value, Mapping)
        for topic, reason in value.items():
            yield f"not {verb}: {topic}, {reason}"


def _answer(command: Answer) -> Iterator[str]:
    response = command.response
    if not isinstance(response, ShutdownResponse):
        for tp, result in response.items():
            message = f": {result.message}" if result.message else ""
            yield f"answer {tp} {result.code.name}{message}"
    elif response.error is not ErrorCode.NONE:
        yield f"answer {response.error.name}"
    elif response.remaining:
        yield f"answer that the broker still leads {_partitions(response.remaining)}"
    else:
        yield "answer that the broker leads nothing"


def _assignments(command: WriteAssignments) -> Iterator[str]:
    for topic, changes in command.topics.items():
        for number, found in changes.items():
            tp = TopicPartition(topic, number)
            yield (
                f"assign {tp} {assignment(found)}" if found else f"remove {tp} from its topic node"
            )


def _topic_ids(command: GiveTopicIds) -> Iterator[str]:
    for topic, topic_id in command.topics.items():
        yield f"write the id of {topic} again" if topic_id else f"give {topic} an id"


_TOLD: Mapping[type, Callable[[Any], Iterator[str]]] = {
    StartChannel: lambda c: iter([f"connect to {_broker(c.broker.id, c.broker.epoch)}"]),
    StopChannel: lambda c: iter([f"disconnect from {c.broker_id}"]),
    WriteLeaderAndIsr: _write,
    ReadLeaderAndIsr: lambda c: iter([f"read the state of {_partitions(c.partitions)}"]),
    ReadElectionSettings: lambda c: iter([f"read the settings of {','.join(c.topics)}"]),
    WriteAssignments: _assignments,
    DeleteTopicNodes: lambda c: iter([f"delete the nodes of {','.join(c.topics)}"]),
    GiveTopicIds: _topic_ids,
    DeleteIsrChanges: lambda c: iter([f"delete notification {','.join(c.names)}"]),
    DeleteLogDirEvents: lambda c: iter([f"delete notification {','.join(c.names)}"]),
    DeleteDeletionMarks: lambda c: iter([f"delete the deletion mark of {','.join(c.topics)}"]),
    DeletePreferredElection: lambda _: iter(["delete /admin/preferred_replica_election"]),
    TrimReassignments: lambda c: iter(
        [f"trim /admin/reassign_partitions by {_partitions(c.finished)}"]
    ),
    Answer: _answer,
    WatchStates: lambda c: iter([f"watch the state of {_partitions(c.partitions)}"]),
    UnwatchStates: lambda c: iter([f"stop watching the state of {_partitions(c.partitions)}"]),
    AnnounceStep: lambda c: iter([f"step {c.operation} {c.step}: {_partitions(c.partitions)}"]),
}

LOGGERS = ("minikafka", "state-change")


@pytest.mark.parametrize("file", scenarios(__file__))
def test_controller_decides_as_told_when(
    file: Path, rewrite: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "minikafka.deciders.controller")
    play(file, Player(caplog), rewrite=rewrite)


class ToldWorld(World):
    """A World that keeps what failed among the commands, as lines of text."""

    shows_steps = False

    @property
    def happened(self) -> list[object]:
        return self.commands  # type: ignore[return-value]

    def carry_out(self, commands: list[Command]) -> bool:
        lives = super().carry_out(commands)
        if not self.shows_steps:
            self.commands = [one for one in self.commands if not isinstance(one, AnnounceStep)]
        return lives

    def answer_of(self, question: Question) -> Any:
        value = super().answer_of(question)
        self.happened.extend(failures_of(value, question))
        return value


class Player:
    """The player of one scenario. Each verb is the method with its name."""

    def __init__(self, log: pytest.LogCaptureFixture) -> None:
        self._log = log
        self.world = ToldWorld()
        self.world.before_write = self._race
        self.world.clear()
        self._races: list[Callable[[], None]] = []

    def __call__(self, heard: Input) -> Iterable[str]:
        self._log.clear()
        is_given = heard.verb == "given"
        if is_given:
            heard.verb = heard.words.pop(0)
        told = getattr(self, heard.verb)(heard)
        happened = list(lines_of(self.world.happened))
        self.world.clear()
        if is_given:
            return
        yield from told or ()
        yield from happened
        for record in self._log.records:
            if record.levelno >= logging.WARNING and record.name.startswith(LOGGERS):
                yield f"log {record.levelname} {record.getMessage()}"

    # The cluster and its controller.

    def cluster(self, heard: Input) -> None:
        settings = replace(
            DEFAULTS,
            delete_topic_enable=heard.option("delete.topic.enable", "true") == "true",
            leader_imbalance_per_broker_percentage=heard.number(
                "leader.imbalance.per.broker.percentage", 10
            ),
        )
        self.world = ToldWorld(heard.number("brokers", 3), 1, settings)
        self.world.shows_steps = heard.flag("steps")
        self.world.before_write = self._race
        self.world.clear()

    def _race(self, question: WriteLeaderAndIsr) -> None:
        if self._races:
            self._races.pop(0)()

    def controller(self, heard: Input) -> None:
        """The next controller is elected, and has found these suspects, each as id@epoch."""
        found = heard.option("suspects")
        suspects = dict(map(int, one.split("@")) for one in found.split(",") if one)  # type: ignore[misc]
        self.world.start(heard.number("epoch"), suspects)

    # Brokers.

    def kill(self, heard: Input) -> None:
        self.world.kill(*map(int, heard.words))

    def register(self, heard: Input) -> None:
        self.world.register(int(heard.words[0]), heard.number("epoch", 1))

    def move(self, heard: Input) -> None:
        """The broker changes the endpoints of its registration."""
        id_ = int(heard.words[0])
        self.world.brokers[id_] = Broker(id_, endpoints("other", 1, "other", 2), 1)
        self.world.handle(BrokersChanged(dict(self.world.brokers)))

    def shutdown(self, heard: Input) -> None:
        self.world.shut_down(int(heard.words[0]), heard.number("epoch", 1))

    def suspect(self, heard: Input) -> None:
        id_ = int(heard.words[0])
        self.world.handle(BrokerSuspected(id_, self._epoch(heard, id_), "refused"))

    def alive(self, heard: Input) -> None:
        id_ = int(heard.words[0])
        self.world.handle(SuspicionEnded(id_, self._epoch(heard, id_)))

    def _epoch(self, heard: Input, broker_id: int) -> int:
        known = self.world.brokers.get(broker_id)
        return heard.number("epoch", known.epoch if known else 1)

    def directories(self, heard: Input) -> None:
        """A broker announces that it lost a log directory."""
        self.world.handle(LogDirsFailed((heard.option("notification"),), (int(heard.words[0]),)))

    def answered(self, heard: Input) -> None:
        """A broker answers LeaderAndIsr, with an error code per partition."""
        id_ = int(heard.words.pop(0))
        codes = tuple((tp, int(ErrorCode[code])) for tp, code in map(_pair, heard.words))
        epoch = self._epoch(heard, id_)
        self.world.handle(LeaderAndIsrAnswered(id_, epoch, ControllerResponse(0, codes)))

    def deleted(self, heard: Input) -> None:
        """A broker answers a StopReplica that deletes replicas."""
        id_ = int(heard.words.pop(0))
        error = int(ErrorCode[heard.option("error", "NONE")])
        known = self.world.brokers[id_]
        self.world.brokers[id_] = replace(known, epoch=self._epoch(heard, id_))
        self.world.deleted(id_, *map(_tp, heard.words), error=error)
        self.world.brokers[id_] = known

    # Topics.

    def create(self, heard: Input) -> None:
        topic = heard.words.pop(0)
        self.world.topics[topic] = _image(heard)
        self.world.handle(TopicsChanged({topic: self.world.topics[topic]}))

    def extend(self, heard: Input) -> None:
        """The topic node gets these partitions."""
        topic = heard.words.pop(0)
        self.world.topics[topic] = made = _image(heard)
        self.world.handle(AssignmentChanged(topic, made.assignment, made.topic_id is not None))

    def recreate(self, heard: Input) -> None:
        """The topic was deleted by hand, and created again, before the controller reads its node."""
        topic = heard.words.pop(0)
        del self.world.topics[topic]
        self.world.topics[topic] = _image(heard)
        self.world.handle(TopicsChanged({topic: self.world.topics[topic]}, (topic,)))

    def remove(self, heard: Input) -> None:
        """The topic is deleted by hand."""
        (topic,) = heard.words
        del self.world.topics[topic]
        self.world.handle(TopicsChanged({}, (topic,)))

    def mark(self, heard: Input) -> None:
        self.world.mark(*heard.words)

    def unmark(self, heard: Input) -> None:
        self.world.deletions -= set(heard.words)
        self.world.handle(DeletionsChanged(self.world.deletions))

    def setting(self, heard: Input) -> None:
        """Change a setting of a topic, which the controller does not hear of."""
        (topic,) = heard.words
        if heard.option("unclean.leader.election.enable") == "true":
            self.world.unclean.add(topic)
        self.world.min_isr[topic] = heard.number("min.insync.replicas", 1)

    # ISRs.

    def isr(self, heard: Input) -> None:
        """The leader writes an ISR, and the controller reads it."""
        tp = _tp(heard.words[0])
        self.world.shrink(tp, _ids(heard.words[1]))
        names = tuple(filter(None, [heard.option("notification")]))
        self.world.handle(IsrChanged(names, {tp: self.world.nodes[tp]}))

    def notify(self, heard: Input) -> None:
        """The controller reads state nodes again, because of a notification."""
        nodes, old = self.world.nodes, state(0, [0, 1, 2])
        states = {tp: nodes.get(tp, old) for tp in map(_tp, heard.words)}
        if heard.option("version"):
            states = dict.fromkeys(states, old)
        self.world.handle(IsrChanged((heard.option("notification"),), states))

    # Administrators.

    def reassign(self, heard: Input) -> None:
        targets = {
            tp: None if to == "cancel" else tuple(_ids(to)) for tp, to in map(_pair, heard.words)
        }
        self.world.handle(ReassignmentsRequested(5, targets))

    def submit(self, heard: Input) -> None:
        """Write /admin/reassign_partitions; without partitions, the controller reads it again."""
        if heard.words:
            self.world.submit({tp: _ids(to) for tp, to in map(_pair, heard.words)})
        else:
            self.world.handle(ReassignmentsSubmitted(dict(self.world.submitted)))

    def elect(self, heard: Input) -> None:
        unclean = heard.flag("unclean")
        chosen = None if heard.flag("all") else tuple(map(_tp, heard.words))
        self.world.handle(ElectionRequested(6, unclean, chosen))

    def prefer(self, heard: Input) -> None:
        """Write /admin/preferred_replica_election."""
        self.world.elections = tuple(map(_tp, heard.words))
        self.world.handle(PreferredElectionSubmitted(self.world.elections))

    def rebalance(self, heard: Input) -> None:
        self.world.handle(RebalanceDue())

    def unclean(self, heard: Input) -> None:
        """Unclean elections were allowed for these topics, or all."""
        topics = None if heard.flag("all") else tuple(heard.words)
        self.world.handle(UncleanElectionEnabled(topics))

    # ZooKeeper, unheard.

    def race(self, heard: Input) -> None:
        """Just before the next write of the controller, change ZooKeeper."""
        self._races.append(lambda: self.zookeeper(heard))

    def zookeeper(self, heard: Input) -> None:
        kind, name = heard.words[:2]
        heard.words = heard.words[2:]
        getattr(self, f"_zookeeper_{kind}")(name, heard)

    def _zookeeper_isr(self, name: str, heard: Input) -> None:
        self.world.shrink(_tp(name), _ids(heard.words[0]))

    def _zookeeper_state(self, name: str, heard: Input) -> None:
        if heard.flag("deleted"):
            del self.world.nodes[_tp(name)]
            return
        self.world.nodes[_tp(name)] = state(
            heard.number("leader"),
            _ids(heard.option("isr")),
            epoch=heard.number("epoch"),
            version=heard.number("version"),
            controller=heard.number("controller", 1),
        )

    def _zookeeper_topic(self, name: str, heard: Input) -> None:
        if heard.flag("deleted"):
            del self.world.topics[name]
        else:
            self.world.topics[name] = _image(heard)

    def _zookeeper_broker(self, name: str, heard: Input) -> None:
        if heard.flag("gone"):
            del self.world.brokers[int(name)]
        else:
            self.world.brokers[int(name)] = broker(int(name), heard.number("epoch"))

    def _zookeeper_election(self, name: str, _: Input) -> None:
        self.world.elections = (_tp(name),)

    # What is known.

    def show(self, heard: Input) -> Iterator[str]:
        for word in heard.words:
            shown = getattr(self, f"_show_{word}", None)
            yield from shown() if shown else self._partition(_tp(word))

    def _partition(self, tp: TopicPartition) -> Iterator[str]:
        context, node = self.world.context, self.world.nodes.get(tp)
        known = context.leadership.get(tp)
        assigned = context.assignments.get(tp, ReplicaAssignment(()))
        text = f"{tp} {context.partition_status(tp).value} {assignment(assigned)}"
        yield text + (f" {leadership(known)} version={known.state_version}" if known else "")
        if node != known:
            found = f"{leadership(node)} version={node.state_version}" if node else "no node"
            yield f"{tp} in ZooKeeper: {found}"
        for id_, replicas in context.replica_statuses.items():
            if replicas.get(tp, ReplicaStatus.ONLINE) is not ReplicaStatus.ONLINE:
                yield f"{tp} on {id_} {replicas[tp].value}"
        if tp in context.reassigning:
            yield f"{tp} is being reassigned"

    def _show_topics(self) -> Iterator[str]:
        for topic, found in self.world.topics.items():
            shown = "; ".join(f"{n} {assignment(a)}" for n, a in found.assignment.items())
            known = self.world.context.topic_ids.get(topic)
            assert known in (found.topic_id, None)
            id_ = "" if known == ID else f" id={known.decode().strip() if known else 'none'}"
            yield f"topic {topic}: {shown}{id_}"
        if not self.world.topics:
            yield "no topic"

    def _show_admin(self) -> Iterator[str]:
        world = self.world
        submitted = "; ".join(f"{tp} {ids(to)}" for tp, to in world.submitted.items())
        yield f"reassign_partitions: {submitted or 'none'}"
        if world.elections is not None:
            yield f"preferred_replica_election: {','.join(map(str, world.elections))}"
        yield f"delete_topics: {','.join(sorted(world.deletions)) or 'none'}"
        if world.context.deletions != world.deletions:
            yield f"deletions known to the controller: {','.join(sorted(world.context.deletions))}"
        for topic, reason in world.context.ineligible.items():
            yield f"{topic} cannot be deleted yet: {reason}"

    def _show_counters(self) -> Iterator[str]:
        context = self.world.context
        yield (
            f"unclean elections {context.unclean_elections}, suspicions {context.suspicions}, "
            f"false suspicions {context.false_suspicions}, "
            f"imbalance {self.world.machine.preferred_imbalance_count()}"
        )

    def _show_brokers(self) -> Iterator[str]:
        context = self.world.context
        text = f"registered {ids(context.brokers)}"
        if context.shutting_down:
            text += f", shutting down {ids(sorted(context.shutting_down))}"
        if context.suspects:
            text += f", suspected {','.join(f'{i}@{e}' for i, e in context.suspects.items())}"
        yield text


def _tp(text: str) -> TopicPartition:
    topic, _, partition = text.rpartition("-")
    return TopicPartition(topic, int(partition))


def _pair(text: str) -> tuple[TopicPartition, str]:
    name, _, value = text.partition(":")
    return _tp(name), value


def _ids(text: str) -> list[int]:
    return [int(one) for one in text.split(",") if one]


def _image(heard: Input) -> TopicImage:
    topic_id = None if heard.flag("without-id") else ID
    return TopicImage(topic_id, image(*map(_ids, heard.words)).assignment)
