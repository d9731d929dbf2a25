"""Requests that a client writes to `/admin/reassign_partitions`: execution, refusal and withdrawal."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator

import pytest
from support.brokers.controller_bench import until
from support.commands.json_output import json_output

from minikafka.base.model import TopicPartition
from minikafka.client import NewTopic
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.tools.cli.arguments.partition_arguments import Named
from minikafka.tools.cli.reassign.jobs import ReassignOptions
from minikafka.tools.cli.reassign.moves import Move, ViaNode
from minikafka.tools.cluster.directory import ClusterError
from minikafka.tools.cluster.zookeeper.reassign_node import Plan, ReassignmentNode
from minikafka.zookeeper.nodes import layout

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PLAN = {T0: (1, 2), T1: (2, 0)}


class Bench:
    """A cluster with a topic, and the ZooKeeper session of the tool that writes the request."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self.session = InMemoryClient(cluster.ensemble)
        self.request = ReassignmentNode(self.session, PLAN)

    async def begin(self) -> None:
        async with self.cluster.client() as user:
            await user.create_topics(NewTopic("t", assignment={0: (0, 1), 1: (0, 1)}))
        await self.session.start()

    def hold(self, step: str) -> None:
        for broker in self.cluster.brokers.values():
            broker.gate.hold(f"reassignment.{step}")

    def release(self, step: str) -> None:
        for broker in self.cluster.brokers.values():
            broker.gate.release(f"reassignment.{step}")

    async def held(self) -> None:
        await until(lambda: any(broker.gate.waiting for broker in self.cluster.brokers.values()))

    async def replicas(self) -> dict[TopicPartition, tuple[int, ...]]:
        return {tp: a.replicas for tp, a in (await self.request.assignments()).items()}

    async def finished(self) -> None:
        """Wait until the controller has removed the plan from the node."""
        async for _ in self.request.left():
            pass

    @property
    def has_node(self) -> bool:
        return layout.REASSIGN_PARTITIONS in self.cluster.ensemble.nodes

    def job(self, *, timeout: float | None = None) -> Move:
        replicas = tuple(",".join(map(str, target)) for target in PLAN.values())
        named = Named(tuple(PLAN), ())
        options = ReassignOptions(named, replicas, None, None, None, None, True, timeout, [])
        return Move(options, PLAN, ViaNode(self.request))


@pytest.mark.row("K2")
async def test_reassignment_request_ends_when_the_controller_deletes_the_node() -> None:
    async with MemoryCluster() as cluster:
        bench = Bench(cluster)
        await bench.begin()
        await bench.request.submit()
        await bench.finished()
        assert (await bench.replicas(), bench.has_node) == (PLAN, False)
        await bench.finished()
        await bench.session.close()


@pytest.mark.parametrize("step", ["U1", "A2"])
async def test_identical_request_is_resumed_while_the_first_one_is_in_progress(step: str) -> None:
    async with MemoryCluster() as cluster:
        bench = Bench(cluster)
        await bench.begin()
        bench.hold(step)
        assert await bench.request.submit()
        await bench.held()
        for plan in (PLAN, {T1: PLAN[T1]}):
            again = ReassignmentNode(bench.session, plan)
            assert not await again.submit()
            assert [left async for left in first(again)] == [list(plan)]
        bench.release(step)
        await bench.finished()
        assert await bench.replicas() == PLAN
        await bench.session.close()


async def first(request: ReassignmentNode) -> AsyncIterator[list[TopicPartition]]:
    """Yield the first item of `left` only."""
    async for left in request.left():
        yield left
        return


@pytest.mark.parametrize(
    ("plan", "running"),
    [
        ({T0: (2, 1)}, "t-0 to 1,2, t-1 to 2,0"),
        (PLAN | {T0: (2, 1)}, "t-0 to 1,2"),
        (PLAN | {TopicPartition("u", 0): (1, 2)}, ""),
        ({TopicPartition("u", 0): (1, 2)}, "t-0 to 1,2, t-1 to 2,0"),
    ],
    ids=["another target", "one other target", "more partitions", "other partitions"],
)
async def test_request_that_differs_from_the_one_in_progress_is_refused_with_its_moves(
    plan: Plan, running: str
) -> None:
    async with MemoryCluster() as cluster:
        bench = Bench(cluster)
        await bench.begin()
        bench.hold("A2")
        await bench.request.submit()
        await bench.held()
        other = ReassignmentNode(bench.session, plan)
        if running:
            text = re.escape(f"in /admin/reassign_partitions: {running}; wait until it has ended")
            with pytest.raises(ClusterError, match=f"{text}.*cancel it"):
                await other.submit()
        else:
            assert not await other.submit(), "a larger plan resumes the moves in progress"
        assert await other.take_back() == [tp for tp in plan if tp not in PLAN and not running]
        bench.release("A2")
        await bench.finished()
        assert await bench.replicas() == PLAN
        await bench.session.close()


async def test_moves_that_an_interrupted_command_has_taken_back_are_asked_for_again() -> None:
    """One of two moves has begun and stays in the node; the same command then asks for the other one again."""
    async with MemoryCluster() as cluster:
        bench = Bench(cluster)
        await bench.begin()
        bench.hold("A2")
        await ReassignmentNode(bench.session, {T0: PLAN[T0]}).submit()
        await bench.held()
        assert not await bench.request.submit()
        assert await bench.request.take_back() == [T1]
        assert not await bench.request.submit()
        bench.release("A2")
        await bench.finished()
        assert await bench.replicas() == PLAN
        await bench.session.close()


async def test_request_is_resumed_after_some_of_its_moves_have_completed() -> None:
    async with MemoryCluster() as cluster:
        bench = Bench(cluster)
        await bench.begin()
        first_move = ReassignmentNode(bench.session, {T0: PLAN[T0]})
        await first_move.submit()
        async for _ in first_move.left():
            pass
        bench.hold("A2")
        await ReassignmentNode(bench.session, {T1: PLAN[T1]}).submit()
        await bench.held()
        assert not await bench.request.submit()
        assert [left async for left in first(bench.request)] == [[T1]]
        bench.release("A2")
        await bench.finished()
        await bench.session.close()


async def test_node_without_a_readable_request_is_named_in_the_refusal() -> None:
    async with MemoryCluster() as cluster:
        bench = Bench(cluster)
        await bench.begin()
        cluster.ensemble.put(layout.REASSIGN_PARTITIONS, b"{")
        with pytest.raises(ClusterError, match="without a readable move: delete this node"):
            await bench.request.submit()
        await bench.session.close()


async def test_partition_with_its_target_replicas_does_not_stay_in_the_node() -> None:
    """The controller does not read the request: nothing of it has begun, also where there is nothing to do."""
    async with MemoryCluster() as cluster:
        bench = Bench(cluster)
        await bench.begin()
        bench.hold("U1")
        await ReassignmentNode(bench.session, {T1: PLAN[T1]}).submit()
        await bench.held()
        plan = {T0: (0, 1), T1: PLAN[T1]}
        request = ReassignmentNode(bench.session, plan)
        cluster.ensemble.put(layout.REASSIGN_PARTITIONS, layout.encode_reassignments(plan))
        assert await request.take_back() == [T1]
        assert not bench.has_node
        bench.release("U1")
        await bench.session.close()


@pytest.mark.row("K7")
async def test_reassignment_request_is_withdrawn_if_the_controller_has_not_begun() -> None:
    async with MemoryCluster() as cluster:
        bench = Bench(cluster)
        await bench.begin()
        before = await bench.replicas()
        bench.hold("U1")
        await bench.request.submit()
        await bench.held()
        assert await bench.request.take_back() == [T0, T1]
        assert not bench.has_node
        bench.release("U1")
        async with cluster.client() as user:  # the controller answers after step U1
            await user.create_topics(NewTopic("u"))
            assert await user.admin.list_reassignments() == {}
        assert await bench.replicas() == before
        await bench.request.submit()
        await bench.finished()
        assert await bench.replicas() == PLAN, "it can be asked for again"
        await bench.session.close()


async def test_reassignment_request_that_has_begun_is_not_withdrawn() -> None:
    async with MemoryCluster() as cluster:
        bench = Bench(cluster)
        await bench.begin()
        bench.hold("A2")
        await bench.request.submit()
        await bench.held()
        assert await bench.request.take_back() == []
        assert bench.has_node
        bench.release("A2")
        await bench.finished()
        assert await bench.replicas() == PLAN
        await bench.session.close()


@pytest.mark.row("K1", "K2")
async def test_reassign_command_prints_the_result_of_each_partition(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with MemoryCluster() as cluster:
        bench = Bench(cluster)
        await bench.begin()
        assert await bench.job().do()
        out = capsys.readouterr().out
        assert '"topic":"t","partition":1,"replicas":[0,1]' in out
        for number in range(2):
            assert f"Reassignment of partition t-{number} is completed." in out
        await bench.session.close()


@pytest.mark.row("K3", "K7")
@pytest.mark.parametrize("how", ["interrupted", "timed out"])
@pytest.mark.parametrize("step", ["U1", "A2"])
async def test_reassign_command_that_ends_early_withdraws_only_partitions_not_yet_begun(
    how: str, step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with MemoryCluster() as cluster:
        bench = Bench(cluster)
        await bench.begin()
        bench.hold(step)
        job = bench.job(timeout=1.0 if how == "timed out" else None)
        with json_output():
            moving = asyncio.ensure_future(job.do())
            await bench.held()
            if how == "interrupted":
                moving.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await moving
            else:
                assert not await moving
        seen = capsys.readouterr()
        states = {row["state"] for row in json.loads(seen.out)["partitions"]}
        assert (states, bench.has_node) == (
            ({"different"}, False) if step == "U1" else ({"in_progress"}, True)
        )
        expected = "was taken back" if step == "U1" else "they continue"
        assert expected in seen.err
        bench.release(step)
        await bench.finished()
        await bench.session.close()


@pytest.mark.row("K3", "K7")
async def test_reassign_command_interrupted_while_submitting_withdraws_its_request(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with MemoryCluster() as cluster:
        bench = Bench(cluster)
        await bench.begin()
        bench.hold("U1")
        submit = bench.request.submit

        async def submit_without_an_answer() -> None:
            await submit()
            await asyncio.Event().wait()

        bench.request.submit = submit_without_an_answer  # type: ignore[method-assign]
        moving = asyncio.ensure_future(bench.job().do())
        await bench.held()
        moving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await moving
        assert (bench.has_node, "was taken back" in capsys.readouterr().err) == (False, True)
        bench.release("U1")
        await bench.session.close()


async def test_unknown_partition_is_reported_when_the_controller_has_refused_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with MemoryCluster() as cluster:
        bench = Bench(cluster)
        await bench.begin()
        with pytest.raises(
            ClusterError, match=r"^broker 7 is not alive; the live brokers are 0, 1, 2$"
        ):
            await ReassignmentNode(bench.session, {T0: (1, 7)}).submit()
        assert not bench.has_node
        unknown = TopicPartition("t", 9)
        options = ReassignOptions(
            Named((unknown,), ()), ("1,2",), None, None, None, None, True, None, []
        )
        plan = {unknown: (1, 2)}
        request = ReassignmentNode(bench.session, plan)
        assert not await Move(options, plan, ViaNode(request)).do()
        assert "There is no partition t-9." in capsys.readouterr().out
        await bench.session.close()
