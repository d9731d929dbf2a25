"""The findings of `why` in the leader-coordinated mode, the znodes that they are about, and the history."""

from __future__ import annotations

from typing import Any

import pytest
from support.ledger.ledger_lines import Lines, Scene

from minikafka.base.model import NO_EPOCH, LeaderAndIsr, ReplicaAssignment, TopicPartition
from minikafka.broker.ledger.lifecycle import lifecycle
from minikafka.broker.ledger.record import STATE_CHANGE
from minikafka.simulation.zookeeper import ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.tools.explain.evidence import DOWN, Nodes
from minikafka.tools.explain.nodes import nodes_of
from minikafka.tools.explain.past import Past
from minikafka.tools.explain.summary import Story
from minikafka.tools.explain.trace import chains
from minikafka.tools.explain.why import explain
from minikafka.zookeeper.nodes.layout import COORDINATION
from minikafka.zookeeper.nodes.leaders import layout

TP = TopicPartition("t", 0)
ASSIGNED = ReplicaAssignment((1, 2, 3))


def nodes(leader: int = 1, isr: tuple[int, ...] = (1, 2, 3), **more: Any) -> Nodes:
    state = LeaderAndIsr(leader, 4, isr, NO_EPOCH, 7)
    fields = {"assignment": ASSIGNED, "state": state, "is_marked": False, "target": None}
    fields |= {"controller": None, "brokers": (1, 2, 3), "coordination": "leaders", **more}
    return Nodes(**fields)


def scene(found: Nodes, **views: dict[str, Any]) -> Scene:
    """Return three brokers without a controller. `views`: what a broker knows about its replica, by `b` and its id."""
    made = Scene()
    made.coordination = "leaders"
    made.nodes = found
    for id_, answer in made.answers.items():
        followed = {"status": "following", "refusal": None}
        answer["controller"] = views.get(f"b{id_}", followed)
        answer["replica"] |= {"leader_epoch": 4}
    return made


def report(made: Scene) -> list[str]:
    """Return the texts of the findings and of their causes."""
    found: list[str] = []
    left = explain(made.evidence())
    while left:
        finding = left.pop(0)
        found.append(finding.text)
        left = [*finding.because, *left]
    return found


def test_healthy_partition_needs_no_controller() -> None:
    assert report(scene(nodes())) == []


def test_opening_leader_is_named_with_the_replicas_that_it_waits_for() -> None:
    made = scene(nodes())
    made.answers[1]["replica"]["opening"] = [2, 3]
    assert report(made) == ["leader 1 does not serve clients before 2,3 of the ISR have caught up"]


def test_elected_broker_that_has_not_taken_its_role_is_named() -> None:
    made = scene(nodes())
    made.answers[1]["replica"]["role"] = "follower"
    made.answers[1]["held_at"] = "election.L1"
    assert report(made)[:2] == [
        "broker 1 was elected in epoch 4 but does not lead yet",
        "broker 1 is held at step election.L1",
    ]


def test_replica_that_waits_is_named_with_the_reason_of_its_refusal() -> None:
    waits = {"status": "waiting", "refusal": "broker 2 is not in the ISR 1"}
    made = scene(nodes(-1, (1,)), b2=waits, b3=waits)
    for id_ in (2, 3):
        made.answers[id_]["replica"]["role"] = "follower"
    made.processes[1] = DOWN
    del made.answers[1]
    found = report(made)
    assert found[0] == "t-0 is offline: it has no leader"
    assert "replica 2 waits for a leader: broker 2 is not in the ISR 1" in found
    assert not any("controller" in text for text in found)


def test_unreadable_node_is_named() -> None:
    path = layout.isr_path(TP)
    made = scene(nodes(-1, faults={path: "no epoch"}))
    made.answers[1]["replica"]["role"] = "follower"
    assert f"nothing is decided while {path} is not readable: no epoch" in report(made)


def test_deletion_names_the_broker_whose_queue_is_not_empty() -> None:
    made = scene(nodes(is_marked=True, backlog={1: 0, 2: 0, 3: 2}))
    made.processes[3] = DOWN
    del made.answers[3]
    assert report(made) == [
        "t-0 is being deleted and not deleted yet",
        "broker 3 has not handled the requests in its queue: 2",
        "broker 3 is down: it has no process",
    ]


def test_half_made_partition_is_named_as_being_created() -> None:
    made = scene(nodes(assignment=None, state=None, is_being_created=True))
    assert report(made) == ["t-0 is being created: its replica list is not written yet"]


def test_replica_without_a_leader_to_prefer_names_how_leaderships_return() -> None:
    made = scene(nodes(leader=2))
    made.answers[1]["replica"]["role"] = "follower"
    made.answers[2]["replica"] |= {"role": "leader", "followers": []}
    assert any("every 300 s a leader gives up" in text for text in report(made))


@pytest.fixture
def ensemble() -> ZooKeeperInMemory:
    made = ZooKeeperInMemory()
    made.put(COORDINATION, b"leaders")
    made.put(layout.topic_path("t"), layout.encode_topic(bytes(range(16))))
    made.put(layout.replicas_path(TP), b"1,2")
    return made


async def read(ensemble: ZooKeeperInMemory) -> Nodes:
    zookeeper = InMemoryClient(ensemble)
    await zookeeper.attach()
    return await nodes_of(zookeeper, TP)


async def test_read_nodes_finds_leader_isr_reassignment_and_queues(
    ensemble: ZooKeeperInMemory,
) -> None:
    ensemble.put(layout.leader_path(TP), b"2;5")
    ensemble.put(layout.isr_path(TP), b"1,2;5")
    ensemble.put(layout.reassignment_path(TP), b"2,3")
    ensemble.put(f"{layout.BROKER_IDS}/2", b"{}")
    ensemble.put(f"{layout.queue_path(3)}/q-0000000000", b"{}")
    assert await read(ensemble) == Nodes(
        controller=None,
        brokers=(2,),
        assignment=ReplicaAssignment((2, 3, 1), (3,), (1,)),
        state=LeaderAndIsr(2, 5, (1, 2), NO_EPOCH, 0),
        is_marked=False,
        target=None,
        coordination="leaders",
        backlog={3: 1},
    )


async def test_read_nodes_reports_what_it_cannot_parse(ensemble: ZooKeeperInMemory) -> None:
    ensemble.put(layout.isr_path(TP), b"nonsense")
    found = await read(ensemble)
    assert found.state is None
    assert list(found.faults) == [layout.isr_path(TP)]


async def test_read_nodes_tells_a_half_made_partition_from_one_that_is_deleted(
    ensemble: ZooKeeperInMemory,
) -> None:
    ensemble.put(layout.reassignment_path(TP), b"")
    assert (await read(ensemble)).is_marked
    ensemble.delete(layout.replicas_path(TP))
    ensemble.put(layout.reassignment_path(TP), b"1,2")
    found = await read(ensemble)
    assert (found.is_being_created, found.is_marked, found.assignment) == (True, False, None)


# The history in the ledgers.


@pytest.fixture
def ledger() -> Lines:
    return Lines()


def move(ledger: Lines, broker: int, source: str, target: str, epoch: int = 1) -> Any:
    text = f"partition t-0 goes from {source} to {target}"
    fields = {"fact": "move", "topic": "t", "partition": 0, "source": source, "target": target}
    return ledger.add(STATE_CHANGE, "", broker, **fields, epoch=epoch, text=text)


def request(ledger: Lines, broker: int, fact: str, text: str, sender: int = 0) -> Any:
    fields = {"fact": fact, "topic": "t", "partition": 0, "operation": "start-replica"}
    return ledger.add(
        STATE_CHANGE, "", broker, **fields, sender=sender, receiver=1, epoch=10, text=text
    )


def summaries(ledger: Lines) -> list[str]:
    history = chains(ledger.lines, TP)
    Story(ledger.lines, TP).summarize(history)
    return [chain.summary for chain in history if chain.summary]


def test_election_is_told_with_the_loss_that_caused_it(ledger: Lines) -> None:
    ledger.add("broker", "", 1, fact="registered")
    move(ledger, 1, "electing", "opening")
    move(ledger, 1, "opening", "leading")
    lost = ledger.add("broker", "", 2, fact="connection lost", to=1)
    won = move(ledger, 2, "electing", "opening", 2)
    opened = move(ledger, 2, "opening", "leading", 2)
    lost["time"], won["time"], opened["time"] = 5_000, 5_900, 6_000
    assert summaries(ledger)[-2:] == [
        "leader 1 was lost at 00:00:05.000; broker 2 elected itself the leader",
        "leader 2 opened in epoch 2; clients could write again after 1.0 s",
    ]
    past = Past(ledger.lines, TP)
    assert past.led_since() == [("", f"2#{won['n']}")]
    assert past.broker_lost(1) == [("", f"2#{lost['n']}")]
    ledger.add("broker", "", 1, fact="started")
    assert Past(ledger.lines, TP).broker_lost(1) == []


def test_end_of_a_leadership_and_a_refusal_are_told(ledger: Lines) -> None:
    move(ledger, 1, "leading", "following", 3)
    fields = {"fact": "refuse", "topic": "t", "partition": 0, "reason": "r"}
    ledger.add(STATE_CHANGE, "", 2, **fields, text="partition t-0: r")
    move(ledger, 2, "waiting", "electing")
    assert summaries(ledger) == ["broker 1 stopped leading in epoch 3", "partition t-0: r"]


def test_lines_about_other_partitions_are_left_out(ledger: Lines) -> None:
    line = move(ledger, 1, "electing", "opening")
    line["partition"] = 1
    assert summaries(ledger) == []
    assert Past(ledger.lines, TP).is_empty


@pytest.mark.row("C38")
def test_lifecycle_has_the_lines_of_the_design_page_as_they_are_written(ledger: Lines) -> None:
    asked = "leader, broker id 0, requested start-replica for topic t partition 0, to broker id 1, at epoch 10"
    got = "follower, broker id 1, received start-replica for topic t partition 0, from leader 0, at epoch 10"
    request(ledger, 0, "requested", asked)
    request(ledger, 1, "received", got)
    move(ledger, 1, "absent", "waiting")
    first, second = lifecycle(ledger.lines, "t", 0)
    assert [str(first), str(second)] == [asked, got]
    assert (first.role, first.broker, first.peer, first.epoch) == ("leader", 0, 1, 10)
    assert (second.role, second.broker, second.peer, second.stage) == ("follower", 1, 0, "received")


def test_lifecycle_names_the_administrator_who_has_no_broker(ledger: Lines) -> None:
    request(ledger, 2, "requested", "administrator, requested …", sender=-1)
    [stage] = lifecycle(ledger.lines, "t", 0)
    assert (stage.role, stage.broker, stage.cause) == ("administrator", -1, "2#1")


def test_broker_that_has_not_stopped_is_named_at_the_end(ledger: Lines) -> None:
    ledger.add("broker", "", 1, fact="registered")
    ledger.add("broker", "", 2, fact="registered")
    [sentence] = Story(ledger.lines, TP).endings(10_000, [1])
    assert sentence.startswith("broker 2 does not answer; its last line in the ledger is from")


def test_ledgers_show_the_last_leader_and_replicas_while_everything_is_down(ledger: Lines) -> None:
    move(ledger, 1, "opening", "leading")
    ledger.isr(5, 1, 1, [1, 2, 3], [1, 2])
    for broker in (2, 3):
        move(ledger, broker, "waiting", "following")
    move(ledger, 2, "opening", "leading", 2)
    move(ledger, 1, "waiting", "following", 2)
    move(ledger, 3, "waiting", "absent", 2)
    request(ledger, 2, "requested", "…", sender=2)
    made = Scene()
    made.ledger, made.coordination = ledger, "leaders"
    evidence = made.all_dead().evidence()
    assert (evidence.leader, evidence.leader_epoch, evidence.isr) == (2, 10, ())
    assert (evidence.assignment.replicas, evidence.source) == ((1, 2), "the ledger")
