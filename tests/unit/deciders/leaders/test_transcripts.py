"""The decisions of one broker in the leader-coordinated mode, told in the files `transcripts/*.txt`.

All inputs are about the partition t-0 of a topic, if they name no other. The nodes of a partition stand as ZooKeeper
has them: `replicas=0,1` (AR), `leader=0;8` and `isr=0,1;8` (with their epochs), `reassigned=0,3` (RAR, empty for a
deletion). `ours` says that the session of this broker owns the node `leader`. `live` are the registered brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from support.deciders.leaders_views import EVERYONE, ID, OTHER_ID
from support.deciders.transcripts import Input, play, scenarios

from minikafka.base.model import TopicPartition
from minikafka.deciders.leaders import commands as c
from minikafka.deciders.leaders import events as e
from minikafka.deciders.leaders.machine import LeadersMachine
from minikafka.deciders.leaders.model import (
    IsrNode,
    LeaderNode,
    Operation,
    PartitionView,
    Reassignment,
    Replicas,
    StateChange,
)
from minikafka.deciders.leaders.states import HostedReplicaStatus

ABSENT = "-"
TOPIC_IDS = {"same": ID, "other": OTHER_ID, "none": None}
LOGS = {ID: "log of t", OTHER_ID: "log of another topic t", None: "log without a topic id"}


@pytest.mark.parametrize("file", scenarios(__file__))
def test_broker_decides_as_told_when(file: Path, rewrite: bool) -> None:
    play(file, Player(), rewrite=rewrite)


def ids(text: str) -> Replicas:
    return tuple(int(id_) for id_ in text.split(",") if id_)


def listed(members: Iterable[int]) -> str:
    return ",".join(map(str, members)) or "nobody"


def nodes(heard: Input) -> PartitionView:
    """Return the nodes of a partition, from the options of an input."""
    replicas, leader = heard.option("replicas", ABSENT), heard.option("leader", ABSENT)
    isr, target = heard.option("isr", ABSENT), heard.option("reassigned", ABSENT)
    members, _, isr_epoch = isr.partition(";")
    leads, _, leader_epoch = leader.partition(";")
    is_ours, is_unreadable = heard.flag("ours"), heard.flag("unreadable")
    is_part_unreadable = heard.flag("unreadable-reassignment")
    return PartitionView(
        TOPIC_IDS[heard.option("topic", "same")],
        None if replicas == ABSENT else ids(replicas),
        0,
        None if leader == ABSENT else LeaderNode(int(leads), int(leader_epoch), 0, is_ours),
        None if isr == ABSENT else IsrNode(ids(members), int(isr_epoch), int(isr_epoch)),
        None if target == ABSENT else Reassignment(ids(target), 0),
        is_readable=not (is_unreadable or is_part_unreadable),
        has_readable_roles=not is_unreadable,
        unclean_election=heard.flag("unclean"),
    )


class Player:
    """One broker, whose id the input `broker` gives."""

    def __init__(self) -> None:
        self.machine = LeadersMachine(1)
        self.seen: PartitionView | None = None
        self.tp = TopicPartition("t", 0)

    def __call__(self, heard: Input) -> Iterable[str]:
        self.tp = TopicPartition("t", heard.number("partition"))
        if heard.verb == "broker":
            self.machine = LeadersMachine(int(heard.words[0]))
            return []
        if heard.verb == "status":
            return [self.machine.status(self.tp).value]
        if heard.verb.startswith("given-"):
            return self.given(heard)
        event = self.event(heard)
        assert not heard.words, heard.words
        return self.told(event)

    def told(self, event: e.Event) -> Iterator[str]:
        for command in self.machine.handle(event, 0):
            yield self.line(command)

    # Inputs.

    def event(self, heard: Input) -> e.Event:
        """Return the event that an input stands for."""
        if heard.verb in ("registered", "lease-ended", "log-dir-failed", "caught-up"):
            return self.plain_event(heard)
        verb, live = heard.verb, EVERYONE
        if (named := heard.option("live", ABSENT)) != ABSENT:
            live = frozenset(ids(named))
        if verb in ("start-request", "close-request", "rescan-request"):
            return self.request(heard, live)
        if verb == "scan":
            log = heard.option("log", "same")
            also = [TopicPartition("t", id_) for id_ in ids(heard.option("also"))]
            self.seen = nodes(heard)
            on_disk = {} if log == "absent" else {self.tp: TOPIC_IDS[log]}
            return e.Scanned(dict.fromkeys((self.tp, *also), self.seen), on_disk, live)
        if verb == "balance":
            may_move = not heard.flag("switched-off")
            self.seen = nodes(heard)
            return e.BalanceDue({self.tp: self.seen}, live, may_move)
        self.seen = nodes(heard)
        kinds = {
            "read": e.PartitionRead,
            "wait-ended": e.ElectionWaitEnded,
            "isr-conflict": e.IsrConflict,
        }
        return kinds[verb](self.tp, self.seen, live)

    def plain_event(self, heard: Input) -> e.Event:
        """Return an event without the nodes of a partition."""
        if heard.verb == "registered":
            return e.Registered()
        if heard.verb == "lease-ended":
            return e.LeaseEnded()
        if heard.verb == "log-dir-failed":
            return e.ReplicasOffline(frozenset({self.tp}))
        return e.CaughtUp(self.tp, ids(heard.option("in-sync")))

    def request(self, heard: Input, live: frozenset[int]) -> e.Event:
        epoch, sender = heard.number("epoch", -1), heard.number("from", -1)
        topic_id = TOPIC_IDS[heard.option("of-topic", "same")]
        if heard.verb == "rescan-request":
            change = StateChange(Operation.RESCAN, TopicPartition("", -1), None, -1, -1)
        else:
            is_start = heard.verb == "start-request"
            operation = Operation.START if is_start else Operation.CLOSE
            change = StateChange(operation, self.tp, topic_id, epoch, sender)
        self.seen = nodes(heard)
        return e.RequestReceived("q-1", change, self.seen, live)

    def handle(self, event: e.Event) -> None:
        self.machine.handle(event, 0)

    def given(self, heard: Input) -> list[str]:
        """Bring the replica into a role by the usual events; the answer says which role it has."""
        kind, seen = heard.verb.removeprefix("given-"), nodes(heard)
        tp = self.tp
        if kind == "follower":
            self.handle(e.Scanned({tp: seen}, {tp: ID}, EVERYONE))
        else:
            assert seen.isr is not None
            assert seen.leader is not None
            isr = IsrNode(seen.isr.ids, seen.leader.epoch - 1, 0)
            alone = PartitionView(ID, seen.replicas, 0, None, isr, None)
            self.handle(e.Scanned({tp: alone}, {tp: ID}, EVERYONE))
            if self.machine.status(tp) is HostedReplicaStatus.WAITING:
                self.handle(e.ElectionWaitEnded(tp, alone, EVERYONE))
            self.handle(e.PartitionRead(tp, seen, EVERYONE))
            if kind == "leader":
                self.handle(e.CaughtUp(tp, seen.isr.ids))
        replica = self.machine.replicas[tp]
        expected = {"follower": "following", "leader": "leading", "opening-leader": "opening"}
        assert replica.status.value == expected[kind]
        return [f"{replica.status.value} in epoch {replica.epoch}"]

    # Answers.

    def line(self, command: c.Command) -> str:
        """Return the line of a command."""
        text = self.of_partition(command) or self.of_broker(command)
        about = getattr(command, "tp", self.tp)
        if about not in (self.tp, TopicPartition("", -1)):
            text = f"{about}: {text}"
        if getattr(command, "view", self.seen) != self.seen:
            text += ", at the nodes of the last read"
        return text

    def of_partition(self, command: c.Command) -> str:
        """Return the line of a command on the nodes of the partition or on the replica, "" for others."""
        match command:
            case c.TryToLead():
                return f"write leader {command.epoch} with the ISR {listed(command.isr)}"
            case c.RaiseEpoch():
                text = f"raise the epoch to {command.epoch} with the ISR {listed(command.isr)}"
                return text + self.closes(command.closes)
            case c.CompleteReassignment():
                text = f"complete the reassignment in epoch {command.epoch}"
                return text + self.closes(command.closes)
            case c.GiveUpLeadership():
                return "delete the node leader"
            case c.BecomeLeader():
                assert command.view.leader is not None
                verb = "lead on" if command.is_renewal else "lead"
                return f"{verb} in epoch {command.view.leader.epoch}{self.new(command.is_new)}"
            case c.BecomeFollower():
                assert command.view.leader is not None
                leader = command.view.leader
                return (
                    f"follow {leader.broker_id} in epoch {leader.epoch}{self.new(command.is_new)}"
                )
            case c.Open():
                return f"open to clients, in sync {listed(command.in_sync)}"
            case c.EndRole():
                return "end the role"
            case c.CloseReplica():
                verb = "set aside" if command.is_stray else "delete"
                return f"{verb} the {LOGS[command.topic_id]}"
        return ""

    def of_broker(self, command: c.Command) -> str:
        """Return the line of every other command."""
        match command:
            case c.Enqueue():
                return f"send {self.request_line(command.request)} to {command.broker_id}"
            case c.Consume():
                return f"consume {command.entry}"
            case c.WatchPartition():
                return "watch the partition"
            case c.WatchReassignments():
                return f"watch the reassignments of {command.topic}"
            case c.Unwatch():
                return "unwatch the partition"
            case c.WaitToElect():
                return "wait for the preferred replica" if command.is_for_preferred else "wait"
            case c.Scan():
                return "scan all partitions"
            case c.Note():
                return self.note(command)
        raise AssertionError(command)

    def note(self, note: c.Note) -> str:
        fields = note.fields
        if fields["kind"] in ("move", "illegal"):
            text = f"{fields['source']} -> {fields['target']}, epoch {fields['epoch']}"
            return text if fields["kind"] == "move" else f"illegal: {text}"
        if fields["kind"] == "refuse":
            return f"refused: {fields['reason']}"
        return f"ledger: {note.text}"

    def closes(self, closes: tuple[tuple[int, StateChange], ...]) -> str:
        """Return the close requests of a multi."""
        if not closes:
            return ""
        lines = {self.request_line(change) for _, change in closes}
        assert len(lines) == 1, closes
        return f", and send {lines.pop()} to {listed(receiver for receiver, _ in closes)}"

    def request_line(self, change: StateChange) -> str:
        assert (change.tp, change.topic_id) == (self.tp, ID), change
        return f"{change.operation.value} at epoch {change.epoch} from {change.sender}"

    @staticmethod
    def new(is_new: bool) -> str:
        return ", as a new replica" if is_new else ""
