"""The ZooKeeper server that a cluster runs: its death under load, its restart, and its replacement by the other kind.

The test of the death under load runs on embedded ZooKeeper, and with `pytest --zookeeper managed` on Apache ZooKeeper.
"""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.clusters.load import load
from support.clusters.running_cluster import BROKERS, KEYS, create_topic, eventually
from support.commands.commands import Ended, call

from minikafka.base.zookeeper import SESSION_FILE
from minikafka.runtime.clock import SystemClock
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.cluster.observation.state import CONNECTED
from minikafka.tools.cluster.processes import ProcessId, is_alive, kill


def sessions(cluster: LocalCluster) -> dict[int, int]:
    """Return the id of each broker's ZooKeeper session."""
    files = {broker: cluster.directory.broker_data(broker) / SESSION_FILE for broker in BROKERS}
    return {broker: json.loads(file.read_bytes())["id"] for broker, file in files.items()}


async def connected(cluster: LocalCluster) -> None:
    """Wait until every broker has a connection to ZooKeeper."""

    async def are_connected() -> bool:
        answers = (await cluster.state()).answers
        states = [answer["session_state"] for answer in answers.values()]
        return states == [CONNECTED] * len(BROKERS)

    await eventually(are_connected)


async def elected(cluster: LocalCluster) -> tuple[Any, ...]:
    """Return what an election or a new session would change: controller, leaders, and epochs of all of them."""
    state = await cluster.state()
    brokers = {broker: answer["broker_epoch"] for broker, answer in state.answers.items()}
    leaders = {tp: (view.leader, view.leader_epoch) for tp, view in state.partitions.items()}
    return state.controller, state.controller_epoch, brokers, leaders


@pytest.fixture
async def patient(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LocalCluster]:
    """A cluster whose sessions last longer than any restart of ZooKeeper, even on a busy machine."""
    kind = request.config.getoption("--zookeeper")
    config = KEYS | {"zookeeper.session.timeout.ms": 60_000}
    async with LocalCluster(len(BROKERS), data=tmp_path, config=config, zookeeper=kind) as cluster:
        yield cluster


async def test_brokers_keep_sessions_and_leaders_when_zookeeper_is_killed_under_load(
    patient: LocalCluster,
) -> None:
    cluster = patient
    await create_topic(cluster, "server-killed-before")
    async with load(cluster, "server-killed"):
        await connected(cluster)
        before, of_brokers = await elected(cluster), sessions(cluster)
        for _ in range(3):
            await cluster.kill_zookeeper()
            await cluster.start_zookeeper()
            await connected(cluster)
        assert await elected(cluster) == before
        assert sessions(cluster) == of_brokers
        await create_topic(cluster, "server-killed-after")


@pytest.fixture
async def here(tmp_path: Path) -> Any:
    """The data directory of a cluster of one broker that commands start. Its processes end after the test."""
    (tmp_path / "one.toml").write_text("[cluster]\nbrokers = 1\nport = 0\n")
    try:
        yield tmp_path / "data"
    finally:
        await LocalCluster(data=tmp_path / "data", attached=False).stop()


async def ok(here: Path, *arguments: str) -> Ended:
    done = await call(*arguments, "--data", str(here))
    assert done.code == 0, done.err
    return done


async def up(here: Path, *options: str) -> Ended:
    return await ok(here, "up", "--config", str(here.parent / "one.toml"), *options)


async def status(here: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((await ok(here, "status", "--json")).out)
    return found


async def test_up_starts_zookeeper_again_after_its_death_and_says_what_it_is(
    here: Path,
) -> None:
    first = await up(here)
    text = "embedded ZooKeeper, one node, not replicated"
    assert f"coordination: {text}" in first.err
    assert text in (await ok(here, "status")).out
    await ok(here, "topics", "create", "kept")
    found = LocalCluster(data=here, attached=False)
    process, broker = found.zookeeper_process(), found.process(1)
    assert process is not None
    await kill(process, SystemClock())
    assert [cause["name"] for cause in (await status(here))["causes"]] == ["zookeeper-down"]
    again = await up(here)
    assert "started ZooKeeper, already running: broker 1," in again.err
    assert "had ended with the error" not in again.err
    await eventually(partial(is_well, here))  # the broker needs a moment to find its session again
    assert found.process(1) == broker
    assert (await ok(here, "topics", "list")).out.split() == ["kept"]


def largest_log(here: Path) -> int:
    """Return the size of the largest log without the zeros that are written in advance."""
    logs = here.glob("zookeeper/data/version-2/log.*")
    return max(len(file.read_bytes().rstrip(b"\0")) for file in logs)


def limit_file_size(process: ProcessId, size: int) -> None:
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, size))


async def test_zookeeper_ends_at_a_failed_write_even_if_it_cannot_log_it(here: Path) -> None:
    await up(here)
    process = LocalCluster(data=here, attached=False).zookeeper_process()
    assert process is not None
    limit_file_size(process, 1)
    creating = asyncio.create_task(call("topics", "create", "t", "--data", str(here)))
    await eventually(partial(has_ended, process))
    await up(here)
    await creating
    await ok(here, "topics", "create", "t", "--if-not-exists")
    assert (await ok(here, "topics", "list")).out.split() == ["t"]


async def is_well(here: Path) -> bool:
    return (await status(here))["causes"] == []


async def has_ended(process: ProcessId) -> bool:
    return not is_alive(process)


async def test_status_and_up_show_the_error_with_which_zookeeper_has_ended(here: Path) -> None:
    await up(here)
    found = LocalCluster(data=here, attached=False)
    process = found.zookeeper_process()
    assert process is not None
    limit_file_size(process, largest_log(here))  # the next write of its transaction log fails
    creating = asyncio.create_task(call("topics", "create", "t", "--data", str(here)))
    await eventually(partial(has_ended, process))
    [cause, *_] = (await status(here))["causes"]
    assert cause["text"].startswith("ZooKeeper is down: it ended with the error: ")
    assert "File too large" in cause["text"]
    again = await up(here)
    assert "ZooKeeper was started again, it had ended with the error: " in again.err
    assert "File too large" in again.err
    await creating
    await ok(here, "topics", "create", "t", "--if-not-exists")


async def test_topics_and_records_remain_when_the_other_kind_of_zookeeper_takes_over(
    here: Path,
) -> None:
    await up(here)
    await ok(here, "topics", "create", "t", "--partitions", "2", "--config", "retention.ms=77")
    running = await up(here, "--zookeeper", "managed")
    assert "zookeeper.connect = managed: the cluster uses" in running.err
    for kind in ("managed", "embedded"):
        described = await ok(here, "topics", "describe", "t")
        await ok(here, "down")
        changed = await up(here, "--zookeeper", kind)
        assert (await status(here))["zookeeper_kind"] == kind
        assert "not replicated" in changed.err
        assert (await ok(here, "topics", "describe", "t")).out == described.out
        assert "retention.ms=77" in described.out
    await ok(here, "down")
    assert "embedded" in (await up(here)).err
