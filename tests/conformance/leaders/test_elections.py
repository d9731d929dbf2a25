"""Elections in the leader-coordinated mode: whole brokers in memory, and nodes that another client writes."""

from __future__ import annotations

import asyncio

import pytest
from support.brokers.leaders_cluster import T0, LeadersCluster, run_leaders

from minikafka.base.coordination import CONTROLLER, LEADERS
from minikafka.base.errors import ConfigError
from minikafka.base.ports import WatchKind
from minikafka.client import NewTopic
from minikafka.deciders.leaders.model import Operation, StateChange
from minikafka.kafka.records.batch import Record
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded
from minikafka.simulation.storage import MemoryStorage
from minikafka.zookeeper.nodes.leaders import queues

SEEDS = range(1, 6)
LAG_MS = 3_000


def send(cluster: LeadersCluster, to: int, request: StateChange) -> str:
    """Add a request to the queue of a broker as another client; return the path of its node."""
    [(path, _)] = cluster.ensemble.write([queues.entry(to, request)])
    assert path is not None
    return path


@pytest.mark.row("C1")
def test_broker_starts_its_replicas_before_it_registers() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        assert cluster.leader is not None
        number = next(id_ for id_ in cluster.brokers if id_ != cluster.leader[0])
        await cluster.stop(number, controlled=False)
        unknown = StateChange(Operation.CLOSE, T0, b"n" * 16, 1, 0)
        entry = send(cluster, number, unknown)
        cluster.notes.clear()
        await cluster.start(number)
        root = "/leaders/brokers"
        order = [
            ("children", f"{root}/state/{number}"),  # with a watch
            ("delete", entry),
            ("children_many", f"{root}/topics"),
            ("exists", f"{root}/topics/t/0/leader"),  # with a watch
            ("create", f"{root}/ids/{number}"),
        ]
        assert [note for note in dict.fromkeys(cluster.notes) if note in order] == order
        follower = cluster.brokers[number].replicas.partitions[T0]
        assert follower.leader == cluster.leader[0]

    run_leaders(1, scenario)


@pytest.mark.row("C3", "C4", "C19")
@pytest.mark.parametrize("seed", SEEDS)
def test_one_of_the_racing_replicas_leads_in_the_next_epoch_and_the_other_follows(
    seed: int,
) -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        assert cluster.leader is not None
        first, epoch = cluster.leader
        cluster.kill_with_session(first)
        await cluster.until(lambda: cluster.leader is not None)
        assert cluster.leader is not None
        winner = cluster.leader[0]
        assert cluster.leader == (winner, epoch + 1)
        (loser,) = cluster.brokers.keys() - {winner}
        partition = cluster.brokers[loser].replicas.partitions[T0]
        await cluster.until(lambda: partition.leader_epoch == epoch + 1)
        assert partition.leader == winner
        assert cluster.brokers[winner].replicas.partitions[T0].is_leader

    run_leaders(seed, scenario)


@pytest.mark.row("C17", "C18")
@pytest.mark.parametrize(
    ("is_dead", "least_ms", "most_ms"), [(True, 0, 1_500), (False, LAG_MS, 9_000)]
)
def test_new_leader_opens_when_the_live_in_sync_replicas_have_caught_up(
    is_dead: bool, least_ms: int, most_ms: int
) -> None:
    """A dead member is not waited for. A live one that does not fetch is waited for until the lag is over."""

    async def scenario(cluster: LeadersCluster) -> None:
        await cluster.produce(b"a")
        assert cluster.leader is not None
        first, second = cluster.leader[0], cluster.state.replicas
        silent = next(id_ for id_ in reversed(second) if id_ != first)
        loop = asyncio.get_running_loop()
        if is_dead:
            cluster.kill_with_session(silent)
        else:
            cluster.pause(silent)
        began = loop.time()
        cluster.kill_with_session(first)
        await cluster.until(lambda: cluster.leader is not None)
        assert cluster.leader is not None
        partition = cluster.brokers[cluster.leader[0]].replicas.partitions[T0]
        await cluster.until(lambda: partition.is_leader)
        assert is_dead or not partition.is_open
        await cluster.produce(b"b")
        took_ms = (loop.time() - began) * 1_000
        cluster.resume(silent)
        assert least_ms <= took_ms < most_ms
        assert cluster.isr in ({cluster.leader[0]}, {cluster.leader[0], silent})

    run_leaders(1, scenario, replica_lag_time_max_ms=LAG_MS)


@pytest.mark.row("C16")
@pytest.mark.parametrize("seed", SEEDS)
def test_record_that_only_the_former_leader_has_is_removed_when_it_follows(seed: int) -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await cluster.produce(b"a")
        assert cluster.leader is not None
        first = cluster.leader[0]
        others = [id_ for id_ in cluster.brokers if id_ != first]
        for number in others:
            cluster.pause(number)
        async with cluster.client() as client:
            await client.produce("t", [Record(value=b"lost")], acks=1)
        cluster.pause(first)
        cluster.end_session(first)
        for number in others:
            cluster.resume(number)
        await cluster.until(lambda: cluster.leader is not None)
        await cluster.produce(b"b")
        cluster.resume(first)
        await cluster.until_in_sync()
        assert await cluster.consumed() == [b"a", b"b"]
        ends = {one.replicas.partitions[T0].log.log_end_offset for one in cluster.brokers.values()}
        assert ends == {2}

    run_leaders(seed, scenario)


@pytest.mark.row("C19")
@pytest.mark.parametrize("seed", SEEDS)
def test_leader_leads_on_in_a_higher_epoch_when_another_client_has_written_its_isr(
    seed: int,
) -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        assert cluster.leader is not None
        number, epoch = cluster.leader
        other = next(id_ for id_ in cluster.brokers if id_ != number)
        members = b",".join(b"%d" % id_ for id_ in cluster.brokers)
        cluster.ensemble.put("/leaders/brokers/topics/t/0/ISR", members + b";%d" % epoch)
        cluster.kill_with_session(other)
        await cluster.produce(b"a")
        await cluster.until(lambda: cluster.leader == (number, epoch + 1))
        await cluster.until(lambda: cluster.isr == cluster.brokers.keys())
        assert await cluster.consumed() == [b"a"]

    run_leaders(seed, scenario, replica_lag_time_max_ms=LAG_MS)


@pytest.mark.row("C36")
def test_only_leaders_watch_reassignments_and_nobody_watches_the_brokers() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        async with cluster.client() as client:
            await client.create_topics(NewTopic("u", assignment={0: (0, 1), 1: (1, 0), 2: (1, 0)}))
        await asyncio.sleep(2)
        root = "/leaders/brokers"
        hosted = {id_: [f"{root}/topics/t/0/leader"] for id_ in cluster.brokers}
        for id_ in (0, 1):
            hosted[id_] += [f"{root}/topics/u/{partition}/leader" for partition in range(3)]
        leading = {0: ["u"], 1: ["u"], 2: []}
        assert cluster.leader is not None
        leading[cluster.leader[0]].append("t")
        for id_, session in cluster.sessions.items():
            watched = {watch for watch in session.watched() if watch[1].startswith("/leaders")}
            assert watched == {
                (WatchKind.CHILDREN, f"{root}/state/{id_}"),
                *((WatchKind.EXISTS, path) for path in hosted[id_]),
                *(
                    (reassignments_kind(cluster, topic), f"{root}/partitions_reassigned/{topic}")
                    for topic in leading[id_]
                ),
            }

    run_leaders(1, scenario)


def reassignments_kind(cluster: LeadersCluster, topic: str) -> WatchKind:
    """Return the kind of watch on the reassignments of a topic, whose node may not exist."""
    there = cluster.node(f"partitions_reassigned/{topic}") is not None
    return WatchKind.CHILDREN if there else WatchKind.EXISTS


@pytest.mark.row("C42")
def test_death_of_a_leader_wakes_only_the_replicas_of_its_partitions() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        async with cluster.client() as client:
            await client.create_topics(NewTopic("u", assignment={0: (0, 1)}))
            await client.produce("u", [Record(value=b"a")])
        await cluster.until(lambda: cluster.node("topics/u/0/ISR") == b"0,1;1")
        await asyncio.sleep(1)
        third = cluster.sessions[3]
        before = third.events_received
        cluster.kill_with_session(0)
        await cluster.until(lambda: cluster.node("topics/u/0/leader") == b"1;2")
        await asyncio.sleep(1)
        assert third.events_received == before

    run_leaders(1, scenario, brokers=4, topic_replicas=(0, 1, 2))


@pytest.mark.row("C1", "C2")
def test_started_broker_waits_for_no_dead_replica_when_it_has_registered() -> None:
    """Before that, nobody counts as dead: at a cold start all brokers are unregistered."""

    async def scenario(cluster: LeadersCluster) -> None:
        await cluster.produce(b"a")
        for number in (0, 1, 2):
            cluster.kill_with_session(number)
        began = cluster.clock.now()
        await cluster.start(1)
        await cluster.until(lambda: cluster.leader == (1, 2))
        assert cluster.clock.now() - began < 5_000
        assert await cluster.consumed() == [b"a"]

    run_leaders(1, scenario, topic_replicas=(0, 1, 2), minikafka_leaders_preferred_wait_ms=30_000)


@pytest.mark.row("C37")
def test_replica_leads_before_the_requests_in_its_full_queue_are_handled() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        assert cluster.leader is not None
        first = cluster.leader[0]
        others = [id_ for id_ in cluster.brokers if id_ != first]
        unknown = StateChange(Operation.CLOSE, T0, b"n" * 16, 1, 0)
        for number in others:
            for _ in range(500):
                send(cluster, number, unknown)
        cluster.kill_with_session(first)
        await cluster.until(lambda: cluster.leader is not None)
        left = [len(cluster.ensemble.nodes[queues.path_of(number)].children) for number in others]
        assert min(left) > 100
        await cluster.until(
            lambda: (
                not any(
                    cluster.ensemble.nodes[queues.path_of(number)].children for number in others
                )
            )
        )

    run_leaders(1, scenario)


@pytest.mark.row("C41")
@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (Operation.CLOSE, "this broker is in AR, RAR or the ISR"),
        (Operation.START, "the partition has epoch 1"),
    ],
)
def test_forged_request_is_refused_and_changes_no_replica(
    operation: Operation, reason: str
) -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await cluster.produce(b"a")
        assert cluster.leader is not None
        follower = next(id_ for id_ in cluster.brokers if id_ != cluster.leader[0])
        topic_id = cluster.brokers[follower].metadata.topic_ids["t"]
        partition = cluster.brokers[follower].replicas.partitions[T0]
        entry = send(cluster, follower, StateChange(operation, T0, topic_id, 7, follower))
        await cluster.until(lambda: entry not in cluster.ensemble.nodes)
        assert cluster.brokers[follower].replicas.partitions[T0] is partition
        assert partition.is_follower
        lines = [line for line in cluster.ledger(follower) if line.get("fact") == "refused"]
        assert lines[-1]["text"].endswith(reason)

    run_leaders(1, scenario)


@pytest.mark.parametrize("first", [LEADERS, CONTROLLER])
def test_broker_of_the_other_mode_is_refused_with_both_names(first: str) -> None:
    async def scenario() -> None:
        async with MemoryCluster(2, coordination=first) as cluster:
            await cluster.stop(1)
            cluster.storages[1] = MemoryStorage()
            [cluster.coordination] = {LEADERS, CONTROLLER} - {first}
            with pytest.raises(ConfigError, match=rf"mode {cluster.coordination}.* mode {first}"):
                await cluster.start(1)

    run_seeded(1, scenario())
