"""One broker, or one step of a broker, hangs in the leader-coordinated mode: what happens meanwhile, and what waits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.brokers.leaders_admin import (
    REQUESTS,
    at,
    below,
    create,
    delete,
    directories,
    plan,
    put,
    run_admin,
    until_held,
)
from support.brokers.leaders_cluster import T0, LeadersCluster, run_leaders

from minikafka.base.errors import ErrorCode, KafkaError, NotConnected
from minikafka.base.model import TopicPartition
from minikafka.broker.modes.leaders.queue import StateChangeQueue
from minikafka.deciders.leaders.events import Event, PartitionRead
from minikafka.deciders.leaders.machine import LeadersMachine
from minikafka.deciders.leaders.model import Operation, StateChange

SESSION_MS = 120_000
"""Longer than a broker hangs in these tests, so that it counts as alive."""
LAG_MS = 10_000
A0 = TopicPartition("a", 0)
ROOT = "/leaders/brokers"


@contextmanager
def hanging(cluster: LeadersCluster, number: int) -> Iterator[None]:
    """Let a broker do nothing, and keep its session."""
    cluster.pause(number)
    try:
        yield
    finally:
        cluster.resume(number)


@pytest.mark.row("C22", "C24")
def test_creation_waits_for_a_broker_that_has_not_started_its_replica() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        store = cluster.brokers[0].capabilities.topics
        with hanging(cluster, 2):
            creation = at(cluster, 0, store.create([plan({0: (1, 2), 1: (1, 0)})]))
            await asyncio.sleep(20)
            assert not creation.done()
            assert below(cluster, f"{REQUESTS}/a") == {"0": b"1,2", "1": b"1,0"}
            assert not [path for path in below(cluster, "topics/a") if path.endswith("replicas")]
            assert directories(cluster, 1) == [], "nobody leads before the replica list"
        assert await creation == {}
        assert cluster.node("topics/a/0/replicas") == b"1,2"

    run_admin(scenario, zookeeper_session_timeout_ms=SESSION_MS)


@pytest.mark.row("C21", "C22", "C24")
def test_creation_fails_and_is_repeated_when_a_broker_does_not_start_its_replica() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        store = cluster.brokers[0].capabilities.topics
        with hanging(cluster, 2):
            errors = await at(cluster, 0, store.create([plan({0: (1, 2)})]))
            error = errors["a"]
            assert isinstance(error, KafkaError)
            assert error.code is ErrorCode.REQUEST_TIMED_OUT
            assert "have not started their replicas in time: 2" in str(error)
            assert cluster.node("topics/a/0/replicas") is None
        await asyncio.sleep(5)
        assert (await create(cluster, {0: (0,)})).ok
        await cluster.until(lambda: not directories(cluster, 1) and not directories(cluster, 2))
        assert below(cluster, f"{REQUESTS}/a") == {}

    run_admin(scenario, zookeeper_session_timeout_ms=SESSION_MS)


@pytest.mark.row("C22", "C25")
def test_deletion_waits_for_a_broker_that_has_not_deleted_its_replica() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        assert (await create(cluster, {0: (0, 1, 2)})).ok
        await cluster.until(lambda: len(directories(cluster, 2)) == 1)
        with hanging(cluster, 2):
            deletion = asyncio.ensure_future(delete(cluster))
            await asyncio.sleep(20)
            assert directories(cluster, 0) == directories(cluster, 1) == []
            assert cluster.node("topics/a/0/replicas") == b"0,1,2"
        assert (await deletion).ok
        await cluster.until(lambda: below(cluster, "topics") == below(cluster, REQUESTS) == {})

    run_admin(scenario, zookeeper_session_timeout_ms=SESSION_MS)


@pytest.mark.row("C21")
def test_clean_up_of_a_failed_creation_closes_its_replicas() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        acting = cluster.brokers[0]
        acting.gate.hold("creation.replicas")
        at(cluster, 0, acting.capabilities.topics.create([plan({0: (1, 2)})]))
        await until_held(cluster, 0, "creation.replicas")
        hosted = [cluster.brokers[id_].capabilities.diagnostics for id_ in (1, 2)]
        assert all(diagnostics.view(A0) for diagnostics in hosted)
        cluster.kill_with_session(0)
        cluster.brokers[1].gate.hold("creation.topic")
        again = at(
            cluster, 1, cluster.brokers[1].capabilities.topics.create([plan({0: (1,)}, b"j" * 16)])
        )
        await until_held(cluster, 1, "creation.topic")
        assert not any(diagnostics.view(A0) for diagnostics in hosted)
        closed = [
            (line["sender"], line["epoch"], line["receiver"])
            for line in cluster.ledger(1)
            if line.get("fact") == "requested" and line["operation"] == "close-replica"
        ]
        assert sorted(closed) == [(-1, -1, 1), (-1, -1, 2)]
        cluster.brokers[1].gate.open()
        assert await again == {}

    run_admin(scenario)


@pytest.mark.row("C21", "C22")
def test_clean_up_waits_for_a_broker_that_has_not_closed_its_replica() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        acting = cluster.brokers[0]
        acting.gate.hold("creation.replicas")
        at(cluster, 0, acting.capabilities.topics.create([plan({0: (1, 2)})]))
        await until_held(cluster, 0, "creation.replicas")
        cluster.kill_with_session(0)
        store = cluster.brokers[1].capabilities.topics
        with hanging(cluster, 2):
            again = at(cluster, 1, store.create([plan({0: (1,)}, b"j" * 16)]))
            await asyncio.sleep(20)
            assert not again.done()
            assert below(cluster, f"{REQUESTS}/a") == {"0": b""}
        assert await again == {}

    run_admin(scenario, zookeeper_session_timeout_ms=SESSION_MS)


@pytest.mark.row("C37")
@pytest.mark.parametrize("step", ["deletion.replica", "reassignment.start", "election.open"])
def test_change_of_a_leader_waits_for_no_other_partition(step: str) -> None:
    """A step of partition a-0 hangs at broker 1, which stands for election in t-0 meanwhile."""

    async def scenario(cluster: LeadersCluster) -> None:
        assert cluster.leader == (0, 1)
        gate = cluster.brokers[1].gate
        if step == "election.open":
            gate.hold(step)
        creation = at(cluster, 1, cluster.brokers[1].capabilities.topics.create([plan({0: (1,)})]))
        if step != "election.open":
            await creation
            gate.hold(step)
            put(cluster, f"{REQUESTS}/a/0", b"" if step == "deletion.replica" else b"1,2")
        await until_held(cluster, 1, step)
        began = cluster.clock.now()
        cluster.kill_with_session(0)
        await cluster.until(lambda: cluster.leader == (1, 2))
        assert cluster.clock.now() - began < 1_000
        assert gate.waiting == step
        gate.open()
        await cluster.produce(b"a")
        assert await creation == {}

    run_leaders(1, scenario, topic_replicas=(0, 1))


def read_by(events: list[tuple[int, Event]]) -> set[tuple[int, TopicPartition]]:
    """Return which brokers have read which partitions because of a watch."""
    return {(number, one.tp) for number, one in events if isinstance(one, PartitionRead)}


@pytest.mark.row("C42")
def test_second_death_of_a_leader_wakes_only_the_replicas_of_its_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events: list[tuple[int, Event]] = []
    handle = LeadersMachine.handle

    def noted(machine: LeadersMachine, event: Event, now: int) -> Any:
        events.append((machine._context.broker_id, event))
        return handle(machine, event, now)

    async def scenario(cluster: LeadersCluster) -> None:
        assert (await create(cluster, {0: (1, 2), 1: (3, 2), 2: (2, 3)})).ok
        await cluster.until(
            lambda: all(
                (cluster.node(f"topics/a/{n}/ISR") or b"").count(b",") == 1 for n in range(3)
            )
        )
        for leader, others in ((0, {1, 2}), (1, {2})):
            await asyncio.sleep(5)
            events.clear()
            node = f"{ROOT}/topics/t/0/leader"
            cluster.ensemble.delete(node)
            cluster.kill(leader)
            await cluster.until(lambda: cluster.leader is not None and cluster.leader[0] != leader)  # noqa: B023
            await asyncio.sleep(2)
            assert read_by(events) == {(number, T0) for number in others}

    monkeypatch.setattr(LeadersMachine, "handle", noted)
    run_leaders(1, scenario, brokers=4, topic_replicas=(0, 1, 2))


@pytest.mark.row("C36")
def test_leader_that_becomes_a_follower_watches_no_reassignment() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        put(cluster, f"{REQUESTS}/t/0", b"0,1,2,9")  # broker 9 never starts
        for former, following in ((0, 1), (1, 2)):
            await asyncio.sleep(2)
            assert watched(cluster, former) == {f"{REQUESTS}/t", f"{REQUESTS}/t/0"}
            administration = cluster.brokers[following].capabilities.administration
            epoch = cluster.brokers[former].info.epoch
            cluster.ensemble.put(
                f"{ROOT}/topics/t/0/ISR",
                b"%d,%d;%d" % (former, following, cluster.leader[1] if cluster.leader else 0),
            )
            await asyncio.sleep(2)
            await at(cluster, following, administration.controlled_shutdown(former, epoch))
            await cluster.until(
                lambda: cluster.leader is not None and cluster.leader[0] != former  # noqa: B023
            )
            await asyncio.sleep(2)
            assert watched(cluster, former) == set()

    run_leaders(1, scenario, topic_replicas=(0, 1, 2), auto_leader_rebalance_enable=False)


def watched(cluster: LeadersCluster, number: int) -> set[str]:
    """Return the nodes of reassignments that a broker watches."""
    paths = [path for _, path in cluster.sessions[number].watched() if REQUESTS in path]
    return {path.removeprefix(f"{ROOT}/") for path in paths}


@pytest.mark.row("C17")
def test_opening_leader_drops_a_lagging_replica_from_the_isr_when_it_opens() -> None:

    async def scenario(cluster: LeadersCluster) -> None:
        await cluster.produce(b"a")
        with hanging(cluster, 2):
            began = cluster.clock.now()
            cluster.kill_with_session(0)
            await cluster.until(lambda: cluster.isr == {1})
            took = cluster.clock.now() - began
            assert LAG_MS <= took < LAG_MS + LAG_MS / 20, "the wait of the opening, and no other"
        await cluster.start(0)
        await cluster.until(lambda: cluster.isr == {0, 1, 2})

    run_leaders(
        1,
        scenario,
        topic_replicas=(0, 1, 2),
        replica_lag_time_max_ms=LAG_MS,
        zookeeper_session_timeout_ms=SESSION_MS,
    )


@pytest.mark.row("C17")
def test_opening_leader_drops_dead_replicas_below_min_insync_replicas() -> None:
    """A member that has not fetched in its epoch counts as lagging, whatever `min.insync.replicas` asks for."""

    async def scenario(cluster: LeadersCluster) -> None:
        await cluster.produce(b"a")
        for number in (0, 2):
            cluster.kill_with_session(number)
        await asyncio.sleep(2)
        assert cluster.isr == {1}
        for number in (0, 2):
            await cluster.start(number)
        await cluster.until(lambda: cluster.isr == {0, 1, 2})
        await cluster.produce(b"b")
        assert await cluster.consumed() == [b"a", b"b"]

    run_leaders(1, scenario, topic_replicas=(0, 1, 2), min_insync_replicas=2)


@pytest.mark.row("R23")
def test_writes_do_not_wait_for_a_broker_that_was_taken_out_of_the_isr() -> None:
    """The leader learns that the ISR has changed when the shutdown of broker 2 is carried out, not by its silence."""

    async def scenario(cluster: LeadersCluster) -> None:
        administration = cluster.brokers[1].capabilities.administration
        for _ in range(2):
            with hanging(cluster, 2):
                epoch = cluster.brokers[2].info.epoch
                assert await at(cluster, 1, administration.controlled_shutdown(2, epoch)) == []
                began = cluster.clock.now()
                await cluster.produce(b"a")
                assert cluster.clock.now() - began < 1_000
                assert cluster.isr == {0, 1}
            await cluster.until(lambda: cluster.isr == {0, 1, 2})

    run_leaders(1, scenario, topic_replicas=(0, 1, 2), zookeeper_session_timeout_ms=SESSION_MS)


@contextmanager
def failing(session: Any, method: str, path: str, times: int) -> Iterator[list[str]]:
    """Let reads of a path with a watch fail before they are sent. The list gets an item for each such read."""
    failed: list[str] = []
    call = getattr(session, method)

    async def read(asked: str, *, watch: bool = False) -> Any:
        if watch and asked == path and len(failed) < times:
            failed.append(asked)
            raise NotConnected("the connection was lost before the request was sent")
        return await call(asked, watch=watch)

    setattr(session, method, read)
    yield failed
    setattr(session, method, call)


@pytest.mark.row("C4", "C36")
def test_leader_is_watched_again_after_reads_that_have_failed() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        follower = cluster.brokers[2].capabilities.diagnostics
        path = f"{ROOT}/topics/a/0/leader"
        with failing(cluster.sessions[2], "exists", path, times=3) as failed:
            assert (await create(cluster, {0: (0, 1, 2)})).ok
            await cluster.until(lambda: cluster.node("topics/a/0/ISR") == b"0,1,2;1")
            assert len(failed) == 3
        for epoch in (2, 3):
            with failing(cluster.sessions[2], "exists", path, times=1) as failed:
                cluster.ensemble.delete(path)
                await cluster.until(lambda: (follower.view(A0) or {})["leader_epoch"] == epoch)  # noqa: B023
                assert len(failed) == 1
            await asyncio.sleep(5)

    run_admin(scenario)


@pytest.mark.row("C9", "C36")
def test_reassignments_are_watched_again_after_reads_that_have_failed() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        assert (await create(cluster, {0: (0, 1)})).ok
        for target in (b"0,1,2", b"0,1", b"0,2"):
            await asyncio.sleep(5)
            path = f"{ROOT}/{REQUESTS}/a"
            with failing(cluster.sessions[0], "children", path, times=2) as failed:
                put(cluster, f"{REQUESTS}/a/0", target)
                await cluster.until(lambda: cluster.node("topics/a/0/replicas") == target)  # noqa: B023
                assert len(failed) == 2

    run_admin(scenario)


@pytest.mark.row("H4")
def test_unclean_election_is_allowed_once_by_each_request() -> None:
    """The replica outside the ISR keeps running: what it was allowed to do once, it does not do again."""

    async def scenario(cluster: LeadersCluster) -> None:
        administration = cluster.brokers[2].capabilities.administration
        for turn in range(2):
            with hanging(cluster, 2):
                await cluster.produce(b"a")
                assert cluster.isr == {0, 1}
                for number in (0, 1):
                    cluster.kill_with_session(number)
            await asyncio.sleep(20)
            assert cluster.leader is None, turn
            asked = administration.elect_leaders(unclean=True, partitions=[T0])
            assert (await at(cluster, 2, asked))[T0].code is ErrorCode.NONE
            await cluster.until(lambda: cluster.leader is not None)
            for number in (0, 1):
                await cluster.start(number)
            await cluster.until(lambda: cluster.isr == {0, 1, 2})
            await at(cluster, 2, administration.elect_leaders(unclean=False, partitions=[T0]))
            await cluster.until(lambda: cluster.leader is not None and cluster.leader[0] == 0)

    run_leaders(
        1,
        scenario,
        topic_replicas=(0, 1, 2),
        replica_lag_time_max_ms=3_000,
        zookeeper_session_timeout_ms=SESSION_MS,
    )


@pytest.mark.row("C13", "C30")
def test_reassignment_completes_when_a_full_queue_has_room_again() -> None:
    """No event tells the leader that broker 2, which is down, has room for its close request."""

    async def scenario(cluster: LeadersCluster) -> None:
        await cluster.produce(b"a")
        cluster.kill_with_session(2)
        await cluster.until(lambda: cluster.isr == {0, 1})
        queue = StateChangeQueue(cluster.sessions[0], cluster.clock, 0, maximum=2)
        for number in range(2):
            elsewhere = TopicPartition("elsewhere", number)
            await queue.enqueue(2, StateChange(Operation.CLOSE, elsewhere, b"e" * 16, 1, 0))
        put(cluster, f"{REQUESTS}/t/0", b"0,1")
        await asyncio.sleep(20)
        assert cluster.node("topics/t/0/replicas") == b"0,1,2"
        assert cluster.node(f"{REQUESTS}/t/0") == b"0,1"
        for name in cluster.ensemble.children(f"{ROOT}/state/2"):
            cluster.ensemble.delete(f"{ROOT}/state/2/{name}")
        await cluster.until(lambda: cluster.node("topics/t/0/replicas") == b"0,1")
        [close] = below(cluster, "state/2").values()
        assert b"close-replica" in close

    run_leaders(1, scenario, topic_replicas=(0, 1, 2), minikafka_leaders_queue_max=2)
