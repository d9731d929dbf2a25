"""The actions of the console that harm a cluster really do so, and so do their command lines, copied from the page."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.clusters.running_cluster import eventually
from support.commands.commands import call
from support.commands.console_server import console_of, get, post

from minikafka.client import Client, NewTopic, Record
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.cluster.processes import is_paused
from minikafka.tools.console.views.action_table import ACTIONS

pytestmark = pytest.mark.cluster
KEYS = {
    "auto.leader.rebalance.enable": False,
    "zookeeper.session.timeout.ms": 3_000,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
}
LATER_MS = 100
STEP = "creation.partitions-new"
PAUSES = '[[fault]]\ndo = "pause"\nbroker = 2\nfor = 0\n'
PAUSES_LONG = PAUSES.replace("for = 0", "for = 600")
MISSES = '[[fault]]\ndo = "fail-sync"\nbroker = 2\nfor = 0\n'


@pytest.fixture(scope="module")
def broken() -> Iterator[LocalCluster]:
    cluster = LocalCluster(2, faults=True, config=KEYS)
    asyncio.run(cluster.start())
    yield cluster
    asyncio.run(cluster.stop())


@pytest.fixture
async def cluster(broken: LocalCluster) -> AsyncIterator[LocalCluster]:
    yield broken
    await broken.heal()
    await broken.start()
    await broken.wait_until_in_sync()


@pytest.fixture
async def client(cluster: LocalCluster) -> AsyncIterator[Client]:
    async with Client(cluster.bootstrap) as client:
        yield client


Act = Callable[..., Coroutine[Any, Any, str]]
"""Carries out an action with its arguments, and returns what its command printed."""


@pytest.fixture
async def page(cluster: LocalCluster) -> AsyncIterator[aiohttp.ClientSession]:
    async with console_of(cluster) as page:
        yield page


@pytest.fixture
def is_broker_2_paused(cluster: LocalCluster) -> Callable[[], Awaitable[bool]]:
    async def is_paused_now() -> bool:
        process = cluster.process(2)
        return process is not None and is_paused(process)

    return is_paused_now


BUTTON, COPY = "by its button", "by the copied command line"
BOTH = pytest.mark.parametrize("way", [BUTTON, COPY])


@pytest.fixture
async def act(page: aiohttp.ClientSession, way: str) -> Act:
    async def press(action: str, **given: object) -> str:
        asked = {"action": action, "arguments": given, "confirmed": True}
        done = await post(page, "/api/actions/run", asked)
        assert done["exit_code"] == 0, done
        return str(done["output"])

    async def copy(action: str, **given: object) -> str:
        plan = await post(page, "/api/actions/plan", {"action": action, "arguments": given})
        assert "why_not" not in plan
        program, *words = shlex.split(plan["command"])
        assert program == "minikafka"
        ended = await call(*words)
        assert ended.code == 0, ended
        return f"{ended.out}{ended.err}"

    return press if way == BUTTON else copy


def name_of(request: pytest.FixtureRequest) -> str:
    """Return a name for a topic of this test alone."""
    return re.sub("[^a-z]+", "-", request.node.name)


async def topic(
    client: Client, cluster: LocalCluster, request: pytest.FixtureRequest, **configs: str
) -> str:
    """Create a topic of this test whose only replica is on broker 1."""
    name = name_of(request)
    await client.create_topics(NewTopic(name, assignment={0: (1,)}, configs=configs))
    await cluster.wait_for_isr(name)
    await client.produce(name, [Record(value=b"first")])
    return name


async def values(client: Client, name: str) -> list[bytes | None]:
    return [row.value async for row in client.consume(name, until_end=True)]


async def has_hit(cluster: LocalCluster) -> bool:
    return any(fault.has_hit for fault in await cluster.active_faults())


@pytest.mark.parametrize(
    ("way", "verb", "given"),
    [
        (BUTTON, "cut", {"a": "clients", "b": 1}),
        (COPY, "cut", {"a": "clients", "b": 1, "direction": "one", "link": "fetch"}),
        (COPY, "cut-clients", {"broker": 1}),
    ],
)
async def test_cut_holds_requests_until_it_is_healed(
    act: Act,
    client: Client,
    cluster: LocalCluster,
    request: pytest.FixtureRequest,
    verb: str,
    given: dict[str, object],
) -> None:
    name = await topic(client, cluster, request)

    await act(verb, **given)
    written = asyncio.create_task(client.produce(name, [Record(value=b"late")]))
    await eventually(lambda: has_hit(cluster))
    assert "1 requests" in await act("list-faults")
    assert not written.done()
    await act("heal", a=1)
    await written

    assert await values(client, name) == [b"first", b"late"]
    assert await cluster.active_faults() == []


@BOTH
async def test_delay_and_slow_sync_make_a_record_late(
    act: Act, client: Client, cluster: LocalCluster, request: pytest.FixtureRequest
) -> None:
    name = await topic(client, cluster, request, **{"flush.messages": "1"})
    loop = asyncio.get_running_loop()
    for verb, given, waits in (
        ("delay", {"a": "clients", "b": 1}, 2),
        ("slow-sync", {"broker": 1}, 1),
    ):
        await act(verb, **given, ms=LATER_MS)
        begun = loop.time()
        await client.produce(name, [Record(value=b"v")])
        assert (loop.time() - begun) * 1000 >= waits * LATER_MS, verb
        await cluster.heal()


@BOTH
async def test_drop_loses_what_is_sent_and_reset_breaks_connections(
    act: Act, client: Client, cluster: LocalCluster, request: pytest.FixtureRequest
) -> None:
    name = await topic(client, cluster, request)
    await act("drop", a="clients", b=1, direction="one")
    written = asyncio.create_task(client.produce(name, [Record(value=b"again")]))
    await eventually(lambda: has_hit(cluster))
    assert not written.done()
    await cluster.heal()
    await written
    assert await values(client, name) == [b"first", b"again"]

    listener = cluster.record.broker(1).clients[0]
    reader, writer = await asyncio.open_connection(listener.host, listener.port)
    writer.write(bytes.fromhex("0000000a0012000000000001ffff"))  # ApiVersions 0
    assert await reader.read(1)
    assert "connections" in await act("reset", a="clients", b=1)
    with pytest.raises(ConnectionResetError):
        await reader.readuntil(b"no such bytes")
    writer.close()


@pytest.mark.parametrize(
    ("way", "verb", "error"),
    [
        (BUTTON, "fill-disk", "No space left on device"),
        (COPY, "fail-sync", "Input/output error"),
    ],
)
async def test_fault_of_a_disk_takes_the_log_directory_offline(
    act: Act,
    client: Client,
    cluster: LocalCluster,
    request: pytest.FixtureRequest,
    verb: str,
    error: str,
) -> None:
    name = await topic(client, cluster, request, **{"flush.messages": "1"})

    await act(verb, broker=1)
    written = asyncio.create_task(client.produce(name, [Record(value=b"later")]))
    await eventually(lambda: is_offline(cluster, error))
    written.cancel()
    await act("heal")
    await act("restart", broker=1)
    await cluster.wait_until_in_sync()
    await client.produce(name, [Record(value=b"last")])

    found = await values(client, name)
    assert (found[0], found[-1]) == (b"first", b"last")


async def is_offline(cluster: LocalCluster, error: str) -> bool:
    answer = (await cluster.state()).answers.get(1)
    return answer is not None and [*answer["offline_directories"].values()] == [error]


@BOTH
async def test_expired_session_makes_the_broker_register_again(
    act: Act, cluster: LocalCluster
) -> None:
    before = (await cluster.state()).answers[2]["broker_epoch"]

    await act("expire-session", broker=2)

    async def is_newer() -> bool:
        answer = (await cluster.state()).answers.get(2)
        return answer is not None and answer["broker_epoch"] > before

    await eventually(is_newer)


@BOTH
async def test_coordinator_is_paused_and_killed(act: Act, cluster: LocalCluster) -> None:
    name = "coordinated"
    data = str(cluster.directory.path)
    reading = ("consume", name, "--group", "readers", "--exit", "--data", data)
    created = ("topics", "create", name, "--replication-factor", "2", "--data", data)
    await call(*created)
    assert (await call(*reading)).code == 0
    coordinator = await cluster.coordinator_of("readers")

    await act("lose-coordinator", group="readers", how="pause")
    process = cluster.process(coordinator)
    assert process is not None
    assert is_paused(process)
    await act("resume", broker=coordinator)
    await act("lose-coordinator", group="readers")

    assert cluster.process(coordinator) is None


@BOTH
async def test_step_is_held_and_released_and_requests_are_counted(
    act: Act, client: Client, cluster: LocalCluster, request: pytest.FixtureRequest
) -> None:
    await act("hold", step=STEP)
    created = asyncio.create_task(client.create_topics(NewTopic(name_of(request), 1, 1)))
    assert (await act("held", step=STEP)).strip() in ("1", "2")
    assert not created.done()
    await act("release", step=STEP)
    await created

    waiting = asyncio.create_task(act("after", api="Metadata", n=1))
    while not waiting.done():
        await client.describe_topics()
    assert "1 requests of Metadata were sent" in await waiting


async def test_script_is_planned_and_its_counts_are_shown(
    page: aiohttp.ClientSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    body: dict[str, Any] = {"action": "run-faults", "arguments": {"script": PAUSES}}
    plan = await post(page, "/api/actions/plan", body)
    assert plan["plan"][0] == "pause 2: at the start, for 0 s"
    done = await post(page, "/api/actions/run", body | {"confirmed": True})
    assert (done["exit_code"], done["output"]) == (0, "pause 2: began once, hit 1 process\n")
    copied = in_a_shell(plan["command"], tmp_path)
    assert (copied.returncode, copied.stdout) == (0, done["output"])

    body["arguments"] = {"script": MISSES}
    missed = await post(page, "/api/actions/run", body | {"confirmed": True})
    assert missed["exit_code"] == 3
    assert "entry 1 (fail-sync 2) hit nothing" in missed["output"]
    [_, run] = await get(page, "/api/actions/runs")
    assert run["exit_code"] == 3


async def test_script_with_a_mistake_says_so_before_anything_is_harmed(
    page: aiohttp.ClientSession, cluster: LocalCluster
) -> None:
    for script, mistake in (
        (PAUSES.replace("2", "9"), "standard input, entry 1: there is no broker 9, "),
        ("[[fault]]\ndo = ", "standard input: "),
        ("x = 1", "standard input: unknown key 'x': "),
    ):
        body = {"action": "run-faults", "arguments": {"script": script}}
        plan = await post(page, "/api/actions/plan", body)
        assert plan["why_not"].startswith(mistake)
        assert plan["plan"] == []


async def test_script_ends_its_faults_when_the_console_ends(
    cluster: LocalCluster, is_broker_2_paused: Callable[[], Awaitable[bool]]
) -> None:
    asked = {"action": "run-faults", "arguments": {"script": PAUSES_LONG}, "confirmed": True}
    async with console_of(cluster) as page:
        running = asyncio.create_task(page.post("/api/actions/run", json=asked))
        await eventually(is_broker_2_paused)
    with pytest.raises(aiohttp.ClientError):
        await running
    assert not await is_broker_2_paused()


async def test_script_that_takes_too_long_is_ended(
    page: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = replace(ACTIONS["run-faults"], limit_s=0)
    monkeypatch.setitem(ACTIONS, "run-faults", late)
    asked = {"action": "run-faults", "arguments": {"script": PAUSES_LONG}, "confirmed": True}
    done = await post(page, "/api/actions/run", asked)
    assert done["exit_code"] is None
    assert done["output"] == "the command has not ended within 0 s, and was ended"


def in_a_shell(command: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a command line as a user does who has copied it."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=directory,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
