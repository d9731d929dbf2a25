"""A real cluster shared by all tests of a worker. It is healed after each test; ledgers are checked at the end.

`tests/conftest.py` loads this module as a plugin, so that each worker has the fixtures `cluster` and `shared_cluster`
once and starts only one such cluster. Topics and groups of all tests in `cluster`, `clients` and `spark` need distinct
names.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from typing import NamedTuple
from weakref import WeakKeyDictionary

import pytest
from support.ledger.invariants import check_ledgers
from support.rows import proof

from minikafka.base.coordination import LEADERS
from minikafka.base.model import TopicPartition
from minikafka.base.zookeeper import SESSION_FILE
from minikafka.client import Client, NewTopic
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.runtime.transport import SocketTransport
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.cluster.observation.state import brokers_know
from minikafka.tools.cluster.processes import ProcessId, is_paused
from minikafka.zookeeper.client.client import close_session

# Log records that pytest captures would keep the sockets that kafka-python does not close. These sockets would be
# collected after the test, and their warnings would fail the run.
logging.getLogger("kafka").setLevel(logging.CRITICAL)

BROKERS = (1, 2, 3)
KEYS = {
    "auto.leader.rebalance.enable": False,  # leaders move only when a test moves them
    "zookeeper.session.timeout.ms": 3_000,
    "replica.lag.time.max.ms": 10_000,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "controlled.shutdown.retry.backoff.ms": 100,
    "replica.fetch.backoff.ms": 100,
    "group.initial.rebalance.delay.ms": 0,
    "log.cleaner.backoff.ms": 500,
}


RUNNING: set[LocalCluster] = set()
"""The shared cluster of this worker, while it runs."""


@pytest.fixture(scope="session")
def shared_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    shared = LocalCluster(
        len(BROKERS),
        data=tmp_path_factory.mktemp("shared"),
        config=KEYS,
        coordination=request.config.getoption("--coordination"),
        zookeeper=request.config.getoption("--zookeeper"),
    )
    asyncio.run(shared.start())
    RUNNING.add(shared)
    try:
        yield shared
    finally:
        stop_shared_cluster()
    check_ledgers(shared.directory.path)


def stop_shared_cluster() -> None:
    """Stop the shared cluster if it runs, because three idle brokers take 1.5 % of a processor."""
    while RUNNING:
        asyncio.run(RUNNING.pop().stop())


@pytest.fixture
def with_controller(request: pytest.FixtureRequest) -> None:
    """Skip a test of what only a controller does, unless the shared cluster has one."""
    if request.config.getoption("--coordination") == LEADERS:
        pytest.skip("the shared cluster has no controller")


@pytest.fixture
async def cluster(shared_cluster: LocalCluster) -> AsyncIterator[LocalCluster]:
    if not RUNNING:
        await shared_cluster.start()
        RUNNING.add(shared_cluster)
    proof.note(proof.Level.REAL, shared_cluster.record.coordination)
    try:
        yield shared_cluster
    finally:
        await heal(shared_cluster)
        gc.collect()  # objects that this test leaked must warn in this test, not in a later one


class Settled(NamedTuple):
    """The brokers' processes and each partition's (leader, leader epoch) at the end of the last `heal`."""

    processes: list[ProcessId | None]
    leaders: dict[TopicPartition, tuple[int | None, int]]


SETTLED: WeakKeyDictionary[LocalCluster, Settled] = WeakKeyDictionary()


async def heal(cluster: LocalCluster) -> None:
    """Resume and start every process; wait until all replicas are in sync and every broker knows all leaders.

    If no process and no leader has changed since the last call, the brokers' metadata is not read. Then a broker may
    not know a new topic yet: see `known_everywhere`.
    """
    for broker in BROKERS:
        process = cluster.process(broker)
        if process is not None and is_paused(process):
            await cluster.resume(broker)
    if not cluster.is_running():
        await cluster.start()
    processes = [cluster.process(broker) for broker in BROKERS]

    async def is_whole() -> bool:
        state = await cluster.state()
        if state.not_serving(BROKERS) or state.not_in_sync(BROKERS):
            return False
        leaders = {tp: (view.leader, view.leader_epoch) for tp, view in state.partitions.items()}
        last = SETTLED.get(cluster)
        unchanged = (
            last is not None
            and last.processes == processes
            and not any(last.leaders.get(tp, leader) != leader for tp, leader in leaders.items())
        )
        if not unchanged and not await every_broker_knows(cluster, leaders):
            return False
        SETTLED[cluster] = Settled(processes, leaders)
        return True

    await eventually(is_whole)


async def every_broker_knows(
    cluster: LocalCluster, leaders: Mapping[TopicPartition, tuple[int | None, int]]
) -> bool:
    """True if the metadata of every broker has these leaders."""
    known = await asyncio.gather(*(leaders_known_to(cluster, broker) for broker in BROKERS))
    return all(seen.get(tp) == leader for seen in known for tp, (leader, _) in leaders.items())


async def leaders_known_to(cluster: LocalCluster, broker: int) -> dict[TopicPartition, int]:
    """Return the leader of every partition in the metadata of one broker."""
    async with Client(f"127.0.0.1:{cluster.record.broker(broker).port}") as client:
        _, topics = await client.admin.describe()
    return {
        TopicPartition(topic.name, number): partition.leader
        for topic in topics
        for number, partition in topic.partitions.items()
    }


async def kill(cluster: LocalCluster, broker: int) -> None:
    """Kill the broker and end its session at once, so that the failover does not wait for the session timeout."""
    await cluster.kill(broker)
    await end_session(cluster, broker)


async def end_session(cluster: LocalCluster, broker: int) -> None:
    """End the session of a killed or paused broker at once, with the same effect as an expiry."""
    file = cluster.directory.broker_data(broker) / SESSION_FILE
    session = json.loads(file.read_bytes())
    password = bytes.fromhex(session["password"])
    await close_session(
        cluster.zookeeper, int(session["id"]), password, SystemClock(), SocketTransport()
    )


async def create_topic(cluster: LocalCluster, name: str, partitions: int = 3) -> None:
    """Create a topic with the cluster's replication factor of 3."""
    async with Client(cluster.bootstrap) as client:
        await client.create_topics(NewTopic(name, partitions, len(BROKERS)))


async def known_everywhere(cluster: LocalCluster, topic: str) -> None:
    """Wait until every broker's metadata shows the topic. The creation of a topic waits for one broker only."""
    for broker in BROKERS:

        async def is_known(broker: int = broker) -> bool:
            first = TopicPartition(topic, 0)
            return await brokers_know(
                cluster.directory, cluster.record, [broker], first, SystemClock(), SystemRng()
            )

        await eventually(is_known)


async def wait_for_records(cluster: LocalCluster, topics: Collection[str]) -> None:
    """Wait until every topic has committed records, because clients need time to connect."""

    async def have_some() -> bool:
        views = (await cluster.state()).partitions.items()
        return {tp.topic for tp, view in views if view.high_watermark} >= set(topics)

    await eventually(have_some)


async def busiest(cluster: LocalCluster) -> int:
    """Return the id of the broker that leads the most partitions."""
    leaders = [view.leader for view in (await cluster.state()).partitions.values()]
    return max(BROKERS, key=leaders.count)


async def wait_for_leaders(
    cluster: LocalCluster, topics: Collection[str], partitions: int, without: int
) -> None:
    """Wait until every partition of the topics is led by a broker other than `without`."""

    async def are_led() -> bool:
        state = await cluster.state()
        leaders = {state.leader_of(topic, p) for topic in topics for p in range(partitions)}
        return not leaders & {None, without}

    await eventually(are_led)


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Poll until the condition is true. Raises TimeoutError after 60 s.

    The pauses are twice as long as the condition takes, which may run a command, but at most a second.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(60):
        asked = loop.time()
        while not await condition():
            await asyncio.sleep(min(max(0.1, 2 * (loop.time() - asked)), 1.0))
            asked = loop.time()
