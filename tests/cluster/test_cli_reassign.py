"""The command `reassign` against real brokers: moves that complete, are rejected or are interrupted."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clusters.running_cluster import KEYS, eventually, known_everywhere
from support.commands.commands import ENVIRONMENT, NEW_INTERPRETER, Ended, call

from minikafka.base.model import TopicPartition
from minikafka.client import Client, NewTopic, Record
from minikafka.client.administration.results import Resource, ResourceType
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.cluster.processes import is_paused


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster whose session timeout is longer than any test, so that a paused broker counts as alive."""
    keys = {**KEYS, "zookeeper.session.timeout.ms": 40_000}
    running = LocalCluster(3, data=tmp_path_factory.mktemp("patient"), config=keys)
    asyncio.run(running.start())
    try:
        yield running
    finally:
        asyncio.run(running.stop())


async def create(cluster: LocalCluster, topic: str, *replicas: tuple[int, ...]) -> None:
    async with Client(responsive(cluster)) as client:
        await client.create_topics(NewTopic(topic, assignment=dict(enumerate(replicas))))
        for partition in range(len(replicas)):
            records = [Record(value=b"%d" % i) for i in range(200)]
            await client.produce(topic, records, partition=partition)


async def replicas_of(cluster: LocalCluster, topic: str) -> list[tuple[int, ...]]:
    async with Client(responsive(cluster)) as client:
        [info] = await client.describe_topics(topic)
    return [partition.replicas for _, partition in sorted(info.partitions.items())]


async def wait_for_replicas(cluster: LocalCluster, topic: str, *wanted: tuple[int, ...]) -> None:
    """Wait until these are the replicas in the metadata of the first responsive broker."""

    async def are_these() -> bool:
        return await replicas_of(cluster, topic) == [*wanted]

    await eventually(are_these)


async def by_role(cluster: LocalCluster) -> tuple[int, int, int]:
    """Return the ids of a broker that is not the controller, of the controller, and of the third broker."""
    controller = (await cluster.state()).controller
    assert controller is not None
    one, other = (broker for broker in (1, 2, 3) if broker != controller)
    return other, controller, one


async def reassign(cluster: LocalCluster, *arguments: str) -> Ended:
    return await call("reassign", *arguments, "--bootstrap", responsive(cluster))


def responsive(cluster: LocalCluster) -> str:
    """Return the addresses of the brokers that run and are not paused. A command would wait for a paused broker."""
    running = [
        broker.port
        for broker in cluster.record.brokers
        if (process := cluster.process(broker.id)) is not None and not is_paused(process)
    ]
    return ",".join(f"127.0.0.1:{port}" for port in running)


def move(topic: str, partition: int, *replicas: int) -> list[str]:
    brokers = ",".join(map(str, replicas))
    return ["--topic", topic, "--partition", str(partition), "--replicas", brokers]


@pytest.mark.row("K1", "K4", "M4")
async def test_reassign_moves_partitions_with_their_records(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    await create(cluster, "moved", (1, 2), (2, 3), (3, 1))
    done = await reassign(
        cluster, *move("moved", 0, 3, 1), *move("moved", 1, 1), *move("moved", 2, 1, 2, 3)
    )
    assert done.code == 0, done
    assert [line for line in done.out.splitlines() if line.startswith("Reass")] == [
        f"Reassignment of partition moved-{number} is completed." for number in range(3)
    ]
    await wait_for_replicas(cluster, "moved", (3, 1), (1,), (1, 2, 3))
    back = tmp_path / "back.json"
    back.write_text(next(line for line in done.out.splitlines() if line.startswith("{")))
    again = await reassign(cluster, "--file", str(back), "--json")
    assert again.code == 0, again
    assert json.loads(again.out)["completed"] is True
    await wait_for_replicas(cluster, "moved", (1, 2), (2, 3), (3, 1))
    async with Client(responsive(cluster)) as client:
        values = [r.value async for r in client.consume("moved", until_end=True)]
    assert len(values) == 600


@pytest.mark.row("K1", "K12")
async def test_reassign_rejects_partitions_one_by_one_and_moves_the_rest(
    cluster: LocalCluster,
) -> None:
    await create(cluster, "partly", (1, 2))
    done = await reassign(
        cluster,
        *move("partly", 0, 2, 3),
        *move("partly", 7, 1, 2),
        *move("never-made", 0, 1),
        *move("shared-none", 0, 99),
    )
    assert done.code == 1
    assert "partly-0 is completed." in done.out
    assert "partly-7 was rejected: UNKNOWN_TOPIC_OR_PARTITION" in done.out
    assert "never-made-0 was rejected: UNKNOWN_TOPIC_OR_PARTITION" in done.out
    absent = await reassign(cluster, *move("partly", 0, 2, 99))
    assert absent.code == 1
    assert "partly-0 was rejected: INVALID_REPLICA_ASSIGNMENT" in absent.out
    await wait_for_replicas(cluster, "partly", (2, 3))


@pytest.mark.row("K1", "K2")
async def test_reassign_through_zookeeper_moves_the_partitions(cluster: LocalCluster) -> None:
    await create(cluster, "by-node", (1, 2), (2, 3))
    through = f"--via-zookeeper={cluster.zookeeper}"
    done = await call("reassign", *move("by-node", 0, 3, 1), *move("by-node", 1, 1), through)
    assert done.code == 0, done
    assert "Reassignment of partition by-node-1 is completed." in done.out
    await wait_for_replicas(cluster, "by-node", (3, 1), (1,))
    unknown = await call("reassign", *move("by-node", 7, 1), through, "--json")
    assert unknown.code == 1, unknown
    assert json.loads(unknown.out)["partitions"][0]["state"] == "different"


@pytest.mark.row("K3", "K7")
async def test_interrupted_reassign_withdraws_its_request(cluster: LocalCluster) -> None:
    await create(cluster, "taken-back", (1, 2))
    await cluster.hold("reassignment.U1")
    command = [*NEW_INTERPRETER, "reassign", *move("taken-back", 0, 2, 3)]
    process = await asyncio.create_subprocess_exec(
        *command,
        f"--via-zookeeper={cluster.zookeeper}",
        env=ENVIRONMENT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        await cluster.held("reassignment.U1")
        process.send_signal(signal.SIGINT)
        _, err = (text.decode() for text in await process.communicate())
    finally:
        if process.returncode is None:
            process.kill()
        await cluster.release("reassignment.U1")
    assert (process.returncode, "taken-back-0: the request was taken back" in err) == (130, True)
    await create(cluster, "after-it", (1, 2))  # waits until the controller has passed U1
    assert await replicas_of(cluster, "taken-back") == [(1, 2)]


async def test_reassign_command_that_was_killed_is_resumed_by_the_same_command(
    cluster: LocalCluster,
) -> None:
    await create(cluster, "resumed", (1, 2))
    through = f"--via-zookeeper={cluster.zookeeper}"
    words = [*NEW_INTERPRETER, "reassign", *move("resumed", 0, 2, 3), through]
    pipe = asyncio.subprocess.PIPE
    await cluster.hold("reassignment.A2")
    processes = []
    try:
        for _ in range(2):
            process = await asyncio.create_subprocess_exec(
                *words, env=ENVIRONMENT, stdout=pipe, stderr=pipe
            )
            processes.append(process)
            await cluster.held("reassignment.A2")
            if process is processes[0]:
                process.kill()
                await process.communicate()
        assert process.stderr is not None
        assert b"already in progress: following it" in await process.stderr.readline()
        other = await call("reassign", *move("resumed", 0, 3, 1), through)
        assert other.code == 1
        assert "resumed-0 to 2,3; wait until it has ended" in other.err
        assert "to cancel: minikafka reassign --cancel --topic resumed --partition 0" in other.err
    finally:
        await cluster.release("reassignment.A2")
        out, err = await processes[-1].communicate()
    assert processes[-1].returncode == 0, err
    assert b"Reassignment of partition resumed-0 is completed." in out
    await wait_for_replicas(cluster, "resumed", (2, 3))


@pytest.mark.row("K3")
async def test_interrupted_reassign_reports_what_completed(cluster: LocalCluster) -> None:
    slow, first, second = await by_role(cluster)
    await create(cluster, "halfway", (first, second), (first, second))
    await cluster.pause(slow)
    arguments = [*move("halfway", 0, first, slow), *move("halfway", 1, second, first)]
    command = [*NEW_INTERPRETER, "reassign", *arguments]
    process = await asyncio.create_subprocess_exec(
        *command,
        "--bootstrap",
        responsive(cluster),
        env=ENVIRONMENT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:

        async def only_the_first_is_left() -> bool:
            async with Client(responsive(cluster)) as client:
                moving = await client.admin.list_reassignments()
                at = (await client.admin.describe_topics(["halfway"]))["halfway"].partitions[1]
            return [*moving] == [TopicPartition("halfway", 0)] and at.replicas == (second, first)

        await eventually(only_the_first_is_left)
        process.send_signal(signal.SIGINT)
        out, err = (text.decode() for text in await process.communicate())
    finally:
        if process.returncode is None:
            process.kill()
        await cluster.resume(slow)
    assert process.returncode == 130, err
    assert "Reassignment of partition halfway-0 is still in progress." in out
    assert "Reassignment of partition halfway-1 is completed." in out
    assert "1 of 2 reassignments completed, 1 still running" in err
    hint = next(line for line in err.splitlines() if "to verify" in line)

    async def completed() -> bool:
        return (await call(*shlex.split(hint.partition(": ")[2])[1:])).code == 0

    await eventually(completed)
    await wait_for_replicas(cluster, "halfway", (first, slow), (second, first))


@pytest.mark.row("K7", "R57")
async def test_incomplete_reassignment_is_listed_and_cancelled(cluster: LocalCluster) -> None:
    slow, first, second = await by_role(cluster)
    await create(cluster, "stuck", (first, second))
    await cluster.pause(slow)
    begun = await reassign(cluster, *move("stuck", 0, slow, first), "--timeout", "3")
    assert begun.code == 1
    assert "not completed within 3 s" in begun.err
    listed = json.loads((await reassign(cluster, "--list", "--json")).out)["reassignments"]
    assert [(row["topic"], row["adding"], row["removing"]) for row in listed] == [
        ("stuck", [slow], [second])
    ]
    partition = ("--topic", "stuck", "--partition", "0")
    cancelling = asyncio.ensure_future(reassign(cluster, "--cancel", *partition))
    await wait_for_replicas(cluster, "stuck", (first, second))
    await cluster.resume(slow)  # the command also removes throttles, from every broker
    cancelled = await cancelling
    assert cancelled.code == 0, cancelled


@pytest.mark.row("K2")
async def test_reassign_partition_method_returns_true_only_when_the_replicas_moved(
    cluster: LocalCluster,
) -> None:
    await create(cluster, "called", (1, 2))
    async with Client(responsive(cluster)) as client:
        assert await client.admin.reassign_partition("called", 0, [3, 2]) is True
        assert await client.admin.reassign_partition("called", 0, [3, 99]) is False
        assert await client.admin.reassign_partition("called", 9, [3]) is False
    await wait_for_replicas(cluster, "called", (3, 2))


async def test_throttle_is_removed_when_the_reassignment_completed(
    cluster: LocalCluster,
) -> None:
    await create(cluster, "throttled", (1, 2))
    plan = move("throttled", 0, 1, 3)
    begun = await reassign(cluster, *plan, "--throttle", "1000000", "--no-wait")
    assert begun.code == 0, begun

    async def own_settings() -> dict[str, Any]:
        async with Client(responsive(cluster)) as client:
            resource = Resource(ResourceType.TOPIC, "throttled")
            settings = (await client.admin.describe_configs([resource]))[resource]
        return {e.name: e.value for e in settings.entries if "throttled" in e.name and e.value}

    assert (await own_settings())["follower.replication.throttled.replicas"] == "0:3"

    async def completed() -> bool:
        return (await reassign(cluster, "--verify", *plan)).code == 0

    await eventually(completed)
    assert await own_settings() == {}


@pytest.mark.row("R70")
async def test_reassign_carries_out_the_plan_that_reassign_generate_printed(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    async with Client(responsive(cluster)) as client:
        await client.create_topics(NewTopic("fresh", 3, 1))
    await known_everywhere(cluster, "fresh")
    assert {replicas[0] for replicas in await replicas_of(cluster, "fresh")} == {1, 2, 3}
    await create(cluster, "spread", (1, 2), (1, 2), (1, 2))
    both = json.loads((await reassign(cluster, "--generate", "--topics", "spread", "--json")).out)
    assert [row["replicas"] for row in both["current"]["partitions"]] == [[1, 2]] * 3
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(both["proposed"]))
    done = await reassign(cluster, "--file", str(file))
    assert done.code == 0, done

    async def are_spread() -> bool:
        return {replicas[0] for replicas in await replicas_of(cluster, "spread")} == {1, 2, 3}

    await eventually(are_spread)


async def test_reassign_command_reports_completion_after_a_controller_failover(
    cluster: LocalCluster,
) -> None:
    slow, controller, stays = await by_role(cluster)
    await create(cluster, "outlives", (stays,))
    await cluster.pause(slow)
    moving = asyncio.ensure_future(reassign(cluster, *move("outlives", 0, slow, stays)))

    async def accepted() -> bool:
        async with Client(responsive(cluster)) as client:
            return bool(await client.admin.list_reassignments())

    await eventually(accepted)
    await cluster.kill(controller)
    # The start ends the former session of the broker, so another controller is elected.
    await cluster.start(controller)
    await cluster.resume(slow)
    done = await moving
    assert done.code == 0, done
    assert "outlives-0 is completed." in done.out
    await wait_for_replicas(cluster, "outlives", (slow, stays))
