"""State transitions, elections and requests of each controller operation, in order."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
from support.deciders.controller_world import World, broker, image

from minikafka.base.model import (
    LeaderAndIsrRequest,
    StopReplicaRequest,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.deciders.controller.commands import (
    AnnounceStep,
    SendRequest,
    StartChannel,
    StopChannel,
    TrimReassignments,
)
from minikafka.deciders.controller.elections import Election
from minikafka.deciders.controller.events import (
    AssignmentChanged,
    LogDirsFailed,
    RebalanceDue,
    UncleanElectionEnabled,
)
from minikafka.deciders.controller.state_change_log import ILLEGAL, MOVE, PARTITION, REFUSE
from minikafka.deciders.controller.states import PartitionStatus, ReplicaStatus

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
NEW, ONLINE, OFFLINE, STARTED, SUCCESSFUL, INELIGIBLE, NON_EXISTENT = ReplicaStatus
Move = tuple[str, str, str]


def moves(world: World, tp: TopicPartition = T0) -> list[Move]:
    """Return the state transitions of the partition and its replicas since the last call, as (who, from, to)."""
    taken = []
    for decision, partitions in world.machine.drain_decisions().items():
        assert decision.verdict != ILLEGAL
        if decision.verdict == MOVE and tp in partitions:
            who = PARTITION if decision.machine == PARTITION else f"replica {decision.replica}"
            taken.append((who, decision.source, decision.target))
    return taken


def elections(world: World) -> list[str]:
    """Return the elections that chose a leader since the last call."""
    decided = world.machine.drain_decisions()
    return [d.election for d in decided if d.verdict == MOVE and d.election]


def partition(source: PartitionStatus, target: PartitionStatus) -> Move:
    return PARTITION, source.value, target.value


def replica(broker_id: int, *states: ReplicaStatus) -> list[Move]:
    """Return the transitions, as (who, from, to), of a replica that goes through these states."""
    pairs = itertools.pairwise(states)
    return [(f"replica {broker_id}", source.value, target.value) for source, target in pairs]


def begun(world: World) -> World:
    """Drop the decisions and commands recorded so far, and return the world."""
    world.machine.drain_decisions()
    return world.clear()


def moved_away() -> World:
    """Return a world where t-0 prefers broker 0, is led by broker 1 and is fully in sync."""
    world = World().create("t", [0, 1, 2]).kill(0).register(0, epoch=2)
    return begun(world.expand(T0, [1, 2, 0]))


@pytest.mark.row("I2", "G13", "F12")
def test_topic_creation_moves_partition_and_replica_states_to_new_then_online() -> None:
    world = begun(World()).create("t", [0, 1])
    assert moves(world) == [
        partition(PartitionStatus.NON_EXISTENT, PartitionStatus.NEW),
        *replica(0, NON_EXISTENT, NEW),
        *replica(1, NON_EXISTENT, NEW),
        partition(PartitionStatus.NEW, PartitionStatus.ONLINE),
        *replica(0, NEW, ONLINE),
        *replica(1, NEW, ONLINE),
    ]


@pytest.mark.row("I3", "G13")
def test_leader_death_changes_the_partition_state_before_the_replica_state() -> None:
    world = begun(World().create("t", [0, 1, 2])).kill(0)
    assert moves(world) == [
        partition(PartitionStatus.ONLINE, PartitionStatus.OFFLINE),
        partition(PartitionStatus.OFFLINE, PartitionStatus.ONLINE),
        *replica(0, ONLINE, OFFLINE),
    ]
    assert world.commands[0] == StopChannel(0)


@pytest.mark.row("I3")
def test_follower_death_changes_the_replica_state_and_no_partition_state() -> None:
    world = begun(World().create("t", [0, 1, 2])).kill(2)
    assert moves(world) == replica(2, ONLINE, OFFLINE)
    assert world.nodes[T0].isr == (0, 1)


@pytest.mark.row("I4", "G13", "R17")
def test_started_broker_gets_update_metadata_before_leader_and_isr() -> None:
    world = World(brokers=4).create("t", [3, 1]).create("u", [3])
    world.kill(3)
    begun(world.submit({T0: [3, 2]}))
    world.register(3, epoch=7)
    assert world.commands[0] == StartChannel(broker(3, 7))
    to_others, to_new = [
        (to, request) for to, request in world.sent if isinstance(request, UpdateMetadataRequest)
    ][:4:3]
    assert (to_others[1].partitions, to_new[0]) == ((), 3)
    assert {p.tp for p in to_new[1].partitions} == {T0, U0}
    kinds = [type(request) for request in world.sent_to(3)]
    assert kinds[:2] == [UpdateMetadataRequest, LeaderAndIsrRequest]
    assert world.steps[0].startswith("reassignment."), "the reassignment that touches it goes on"
    happened = moves(world, U0)
    assert happened == [
        *replica(3, OFFLINE, ONLINE),
        partition(PartitionStatus.OFFLINE, PartitionStatus.ONLINE),
    ]
    assert world.nodes[U0].leader == 3


@pytest.mark.row("I8", "G13", "F12")
def test_controlled_shutdown_elects_leaders_and_stops_followers() -> None:
    world = begun(World().create("t", [0, 1, 2], [1, 0, 2]))
    world.shut_down(0)
    decided = [d for d in world.machine.drain_decisions() if d.verdict == MOVE]
    assert [(d.machine, d.election or d.target) for d in decided] == [
        (PARTITION, Election.CONTROLLED_SHUTDOWN.value),
        ("replica", OFFLINE.value),
    ]
    assert all(0 not in world.nodes[tp].isr for tp in (T0, T1))


@pytest.mark.row("L3", "G13")
def test_replica_whose_deletion_failed_passes_through_offline_before_the_retry() -> None:
    """Broker 0 fails to delete its replica. When broker 1 starts again, the controller retries the deletion."""
    world = World().create("t", [0, 1])
    begun(world.mark("t"))
    world.deleted(0, T0, error=56)
    assert "t" in world.context.ineligible
    world.register(1, epoch=2)
    world.deleted(0, T0).deleted(1, T0)
    assert [move for move in moves(world) if move[0] == "replica 0"] == replica(
        0, STARTED, INELIGIBLE, OFFLINE, STARTED, SUCCESSFUL, NON_EXISTENT
    )
    assert "t" not in world.topics


@pytest.mark.row("L1", "G13")
def test_topic_deletion_changes_the_partition_state_before_its_replica_states() -> None:
    world = begun(World().create("t", [0, 1])).mark("t")
    world.deleted(0, T0).deleted(1, T0)
    happened = moves(world)
    assert happened[:2] == [
        partition(PartitionStatus.ONLINE, PartitionStatus.OFFLINE),
        partition(PartitionStatus.OFFLINE, PartitionStatus.NON_EXISTENT),
    ]
    for number in (0, 1):
        mine = [move for move in happened if move[0] == f"replica {number}"]
        assert mine == replica(number, ONLINE, OFFLINE, STARTED, SUCCESSFUL, NON_EXISTENT)


@pytest.mark.row("L5", "G13")
def test_replica_removed_by_a_reassignment_passes_through_the_deletion_states() -> None:
    world = begun(World().create("t", [0, 1]))
    world.reassign({T0: [1, 2]})
    world.expand(T0, [0, 1, 2])
    happened = moves(world)
    assert [move for move in happened if move[0] == "replica 0"] == replica(
        0, ONLINE, OFFLINE, STARTED, SUCCESSFUL, NON_EXISTENT
    )
    assert [move for move in happened if move[0] == "replica 2"] == replica(
        2, NON_EXISTENT, NEW, ONLINE
    )


@pytest.mark.row("G13", "X7")
def test_failover_makes_live_replicas_online_and_dead_ones_offline() -> None:
    world = World().create("t", [0, 1, 2])
    del world.brokers[2]
    begun(world).start(epoch=2)
    happened = moves(world)
    assert ("replica 2", INELIGIBLE.value, OFFLINE.value) in happened
    assert world.nodes[T0].isr == (0, 1)
    assert [world.context.replica_status(T0, i) for i in range(3)] == [ONLINE, ONLINE, OFFLINE]


def kill_the_leader(world: World) -> None:
    world.kill(0)


def add_a_partition(world: World) -> None:
    world.create("n", [0, 1])


def ask_for_the_preferred_leader(world: World) -> None:
    world.kill(0).register(0, epoch=2).expand(T0, [1, 2, 0])
    begun(world).elect([T0])


def balance(world: World) -> None:
    world.kill(0).register(0, epoch=2).expand(T0, [1, 2, 0])
    begun(world).handle(RebalanceDue())


def shut_down(world: World) -> None:
    world.shut_down(0)


def reassign(world: World) -> None:
    world.reassign({T0: [1, 2]})


def reassign_from_a_dead_leader(world: World) -> None:
    """Reassign a partition whose leader is a target replica, but shuts down and so must not be elected again."""
    world.shrink(T0, [0])
    world.context.set_leadership(T0, world.nodes[T0])
    world.shut_down(0)
    assert world.nodes[T0].leader == 0, "nobody else was in sync"
    begun(world.expand(T0, [0, 1, 2])).reassign({T0: [2, 1, 0]})


def expand(world: World) -> None:
    world.topics["t"] = image([0, 1, 2], [1, 2])
    world.handle(AssignmentChanged("t", world.topics["t"].assignment))


def fail_over_with_a_new_partition(world: World) -> None:
    world.topics["n"] = image([1])
    world.start(epoch=2)


def fail_over(world: World) -> None:
    del world.brokers[0]
    world.start(epoch=2)


def force(world: World) -> None:
    world.shrink(T0, [0])
    world.context.set_leadership(T0, world.nodes[T0])
    world.kill(0)
    begun(world).elect([T0], unclean=True)


@pytest.mark.row("F12")
@pytest.mark.parametrize(
    ("occasion", "election"),
    [
        (add_a_partition, Election.OFFLINE),
        (kill_the_leader, Election.OFFLINE),
        (fail_over, Election.OFFLINE),
        (ask_for_the_preferred_leader, Election.PREFERRED),
        (balance, Election.PREFERRED),
        (shut_down, Election.CONTROLLED_SHUTDOWN),
        (reassign, Election.REASSIGNED),
        (reassign_from_a_dead_leader, Election.REASSIGNED),
        (expand, Election.OFFLINE),
        (fail_over_with_a_new_partition, Election.OFFLINE),
        (force, Election.UNCLEAN),
    ],
)
def test_cause_of_a_leader_election_decides_the_election_strategy(
    occasion: Callable[[World], None], election: Election
) -> None:
    world = begun(World().create("t", [0, 1, 2]))
    occasion(world)
    assert set(elections(world)) == {election.value}


@pytest.mark.row("F12")
def test_failover_holds_no_election_for_a_partition_whose_leader_lives() -> None:
    world = begun(World().create("t", [0, 1, 2]))
    world.start(epoch=2)
    assert elections(world) == []
    assert world.context.partition_status(T0) is PartitionStatus.ONLINE


@pytest.mark.row("G13", "I9")
def test_added_partition_and_its_replicas_pass_through_state_new() -> None:
    world = begun(World().create("t", [0, 1, 2]))
    expand(world)
    assert moves(world, T1) == [
        partition(PartitionStatus.NON_EXISTENT, PartitionStatus.NEW),
        *replica(1, NON_EXISTENT, NEW),
        *replica(2, NON_EXISTENT, NEW),
        partition(PartitionStatus.NEW, PartitionStatus.ONLINE),
        *replica(1, NEW, ONLINE),
        *replica(2, NEW, ONLINE),
    ]


@pytest.mark.row("H8", "D16")
def test_replica_is_sent_the_current_leader_and_isr_when_no_election_is_needed() -> None:
    world = begun(World().create("t", [0, 1, 2]))
    before = world.nodes[T0]
    world.handle(LogDirsFailed(("log_dir_event_0",), (1,)))
    (request,) = world.sent_to(1, LeaderAndIsrRequest)
    (sent,) = request.partitions
    assert (sent.leader, sent.leader_epoch, sent.isr) == (0, before.leader_epoch, before.isr)
    assert world.nodes[T0] == before
    assert elections(world) == []
    world.clear().start(epoch=2)
    for number in range(3):
        (request,) = world.sent_to(number, LeaderAndIsrRequest)
        assert request.partitions[0].leader_epoch == before.leader_epoch


@pytest.mark.row("X27")
def test_replica_of_a_partition_without_known_leader_goes_offline_with_its_broker() -> None:
    world = World(brokers=4).kill(2).create("t", [2, 3])
    world.before_write = lambda question: world.nodes.__setitem__(U0, world.nodes[T0])
    begun(world).create("u", [3, 1])
    assert U0 not in world.context.leadership, "its node was there already"
    world.before_write = lambda question: None
    begun(world).kill(3)
    assert ("replica 3", ONLINE.value, OFFLINE.value) in moves(world, U0)


@pytest.mark.row("R20", "X24")
def test_death_of_a_broker_without_replicas_sends_update_metadata_to_live_brokers() -> None:
    world = begun(World().create("t", [0, 1])).kill(2)
    assert world.writes == []
    for number in (0, 1):
        (sent,) = world.sent_to(number, UpdateMetadataRequest)
        assert [b.id for b in sent.live_brokers] == [0, 1]


@pytest.mark.row("R20")
def test_controller_forgets_shutdown_state_and_offline_replicas_of_a_dead_broker() -> None:
    world = World().create("t", [0, 1])
    world.shut_down(0)
    world.context.offline_directories[0] = {T0}
    world.kill(0)
    assert not world.context.shutting_down
    assert 0 not in world.context.offline_directories


@pytest.mark.row("J3", "R17")
def test_update_metadata_has_all_live_brokers_and_only_changed_partitions() -> None:
    world = begun(World().create("t", [0, 1], [1, 2])).kill(0)
    for number in (1, 2):
        sent = world.sent_to(number, UpdateMetadataRequest)
        assert {p.tp for request in sent for p in request.partitions} == {T0}
        for request in sent:
            assert [b.id for b in request.live_brokers] == [1, 2]


@pytest.mark.row("J4", "B8")
@pytest.mark.parametrize("count", [1, 40])
def test_broker_death_causes_as_many_requests_for_40_partitions_as_for_one(count: int) -> None:
    world = World().create("t", *([0, 1, 2] for _ in range(count))).clear().kill(0)
    kinds = [type(request) for request in world.sent_to(1)]
    few = World().create("t", [0, 1, 2]).clear().kill(0)
    assert kinds == [type(request) for request in few.sent_to(1)]
    assert len(world.writes) == len(few.writes)


@pytest.mark.row("T10")
def test_broker_that_shuts_down_gets_controller_requests_but_no_new_leadership() -> None:
    world = begun(World().create("t", [0, 1], [1, 0]))
    world.shut_down(0)
    assert world.sent_to(0, LeaderAndIsrRequest)
    assert world.sent_to(0, UpdateMetadataRequest)
    assert world.sent_to(0, StopReplicaRequest)
    world.create("u", [0, 1])
    assert world.nodes[U0].leader == 1, "for every other election it counts as gone"


@pytest.mark.row("C19", "T2", "X19", "X21", "B2")
@pytest.mark.parametrize("seed", range(25))
def test_leader_epochs_rise_by_one_and_no_isr_is_empty_in_random_runs(
    seed: int,
) -> None:
    rng = random.Random(seed)
    world = World(brokers=4).create("t", [0, 1, 2], [1, 2, 3], [3, 0]).create("u", [2, 1])
    epochs = {tp: node.leader_epoch for tp, node in world.nodes.items()}

    def check(question: object) -> None:
        for tp, proposed in question.states.items():  # type: ignore[attr-defined]
            assert proposed.isr
            assert proposed.leader in (-1, *proposed.isr)
            if tp in world.nodes:
                before = world.nodes[tp]
                assert proposed.leader_epoch == before.leader_epoch + 1
                epochs[tp] = proposed.leader_epoch

    world.before_write = check
    broker_epoch = 10
    for _ in range(40):
        broker_epoch += 1
        tp = rng.choice(sorted(world.nodes))
        number = rng.randrange(4)
        what = rng.randrange(6)
        if what == 0 and number in world.brokers:
            world.kill(number)
        elif what == 1:
            world.register(number, epoch=broker_epoch)
        elif what == 2 and number in world.brokers:
            world.shut_down(number, epoch=world.brokers[number].epoch)
        elif what == 3:
            node = world.nodes[tp]
            members = [r for r in world.context.replicas(tp) if world.context.is_online(tp, r)]
            if node.leader in members:
                epoch = node.leader_epoch
                world.expand(tp, [*members])
                assert world.nodes[tp].leader_epoch == epoch, "a leader's own change raises none"
        elif what == 4:
            world.elect([tp], unclean=bool(rng.randrange(2)))
        else:
            world.start(epoch=world.machine.context.epoch + 1)
    for tp, node in world.nodes.items():
        assert node.leader_epoch >= epochs[tp] >= 0
        assert set(node.isr) <= set(world.context.replicas(tp))


@pytest.mark.row("B7")
def test_status_of_an_unknown_partition_or_replica_is_non_existent() -> None:
    context = World().create("t", [0]).context
    assert context.partition_status(TopicPartition("t", 5)) is PartitionStatus.NON_EXISTENT
    assert context.replica_status(T0, 2) is ReplicaStatus.NON_EXISTENT
    assert context.partition_status(T0) is PartitionStatus.ONLINE
    assert context.replica_status(T0, 0) is ReplicaStatus.ONLINE


@pytest.mark.row("X25")
def test_election_request_is_answered_for_each_partition() -> None:
    world = moved_away()
    world.create("u", [1])
    results = world.elect([T0, U0, TopicPartition("none", 0)])
    assert [int(results[tp].code) for tp in (T0, U0, TopicPartition("none", 0))] == [0, 84, 3]
    assert world.nodes[T0].leader == 0


@pytest.mark.row("D17", "F8", "L4")
def test_failover_elects_leaders_of_new_and_offline_but_not_of_deleted_partitions() -> None:
    world = World().create("t", [0, 1]).create("d", [0, 1])
    world.topics["n"] = image([1])
    world.deletions = frozenset({"d"})
    del world.brokers[0]
    begun(world).start(epoch=2)
    assert world.nodes[T0].leader == 1
    assert world.nodes[TopicPartition("n", 0)].leader == 1
    gone = TopicPartition("d", 0)
    led = [write.states[gone].leader for write in world.writes if gone in write.states]
    assert set(led) <= {-1}, "nobody elects for it"


@pytest.mark.row("R62")
def test_balancing_skips_partitions_whose_preferred_replica_cannot_lead() -> None:
    world = World().create("t", [0, 1, 2], [0, 1, 2]).create("d", [0, 1, 2])
    world.kill(0).register(0, epoch=2)
    world.expand(T0, [1, 2, 0])
    d0 = TopicPartition("d", 0)
    world.expand(d0, [1, 2, 0])
    begun(world.mark("d"))
    world.handle(RebalanceDue())
    assert (world.nodes[T0].leader, world.nodes[T1].leader) == (0, 1), "t-1 is not in sync"
    decided = world.machine.drain_decisions()
    assert [d.election for d in decided if d.verdict == MOVE] == [Election.PREFERRED.value]
    assert not [d for d in decided if d.verdict == REFUSE]
    assert d0 not in {tp for write in world.writes for tp in write.states}


@pytest.mark.row("F8", "R63")
def test_enabling_unclean_election_of_one_topic_elects_leaders_only_in_that_topic() -> None:
    world = World().create("t", [0, 1]).create("u", [0, 1])
    for tp in (T0, U0):
        world.shrink(tp, [0])
        world.context.set_leadership(tp, world.nodes[tp])
    world.kill(0)
    world.unclean = {"t", "u"}
    begun(world).handle(UncleanElectionEnabled(("u",)))
    assert (world.nodes[T0].leader, world.nodes[U0].leader) == (-1, 1)


@pytest.mark.row("F4", "J1", "J3")
def test_election_sends_leader_and_isr_to_replicas_and_metadata_to_all_brokers() -> None:
    world = begun(World(brokers=4).create("t", [0, 1, 2])).kill(0)
    roles = {
        number: [p for r in world.sent_to(number, LeaderAndIsrRequest) for p in r.partitions]
        for number in range(4)
    }
    assert [bool(sent) for sent in roles.values()] == [False, True, True, False]
    assert {(p.leader, p.leader_epoch, p.isr) for p in roles[2]} == {(1, 1, (1, 2))}
    for number in (1, 2, 3):
        shown = world.sent_to(number, UpdateMetadataRequest)[0].partitions
        assert [(p.tp, p.leader) for p in shown] == [(T0, 1)]


@pytest.mark.row("R58")
def test_reassignment_that_keeps_the_leader_raises_the_leader_epoch() -> None:
    world = World(brokers=4).create("t", [1, 2])
    world.reassign({T0: [1, 2, 3]})
    before = world.nodes[T0].leader_epoch
    world.expand(T0, [1, 2, 3])
    assert (world.nodes[T0].leader, world.nodes[T0].leader_epoch) == (1, before + 1)


@pytest.mark.row("T19", "R57", "R8")
def test_cancelled_reassignment_stops_new_replicas_in_a_higher_leader_epoch() -> None:
    world = World(brokers=5).create("t", [1, 2])
    world.reassign({T0: [3, 4]})
    epoch = world.nodes[T0].leader_epoch
    world.clear().reassign({T0: None})
    for number in (3, 4):
        epochs = [
            p.leader_epoch for r in world.sent_to(number, StopReplicaRequest) for p in r.partitions
        ]
        assert epochs
        assert min(epochs) > epoch


@pytest.mark.row("I10", "R56")
def test_reassignment_ends_with_update_metadata_to_every_broker() -> None:
    world = World(brokers=4).create("t", [1, 2])
    world.reassign({T0: [2, 3]})
    world.expand(T0, [1, 2, 3])
    last = [type(command) for command in world.commands].index
    step = max(i for i, e in enumerate(world.commands) if isinstance(e, AnnounceStep))
    assert world.steps[-1] == "reassignment.B8"
    sent = [e for e in world.commands[step:] if isinstance(e, SendRequest)]
    assert [e.broker_id for e in sent] == [0, 1, 2, 3]
    for command in sent:
        assert isinstance(command.request, UpdateMetadataRequest)
        assert [p.replicas for p in command.request.partitions] == [(2, 3)]
    assert last(TrimReassignments) < step


@pytest.mark.row("X13")
def test_reassignment_that_only_reorders_replicas_waits_for_no_replica() -> None:
    world = World().create("t", [0, 1, 2])
    world.expand(T0, [0, 1])
    world.reassign({T0: [2, 1, 0]})
    assert world.topics["t"].assignment[0].replicas == (2, 1, 0)
    assert not world.context.reassigning
    world.expand(T0, [0, 1, 2])
    world.elect([T0])
    assert world.nodes[T0].leader == 2, "another replica is preferred now"


@pytest.mark.row("R55", "D18")
def test_reassignment_by_request_is_resumed_from_the_topic_node_by_failover() -> None:
    world = World(brokers=5).create("t", [1, 2])
    world.reassign({T0: [3, 4]})
    assert world.submitted == {}
    begun(world).start(epoch=2)
    assert list(world.context.reassigning) == [T0]
    for number in (3, 4):
        assert world.sent_to(number, LeaderAndIsrRequest)
    world.expand(T0, [1, 2, 3, 4])
    assert world.topics["t"].assignment[0].replicas == (3, 4)
    assert not world.topics["t"].assignment[0].is_being_reassigned
