"""Moves of replicas between log directories, on whole brokers in virtual time."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from support.clients.transactional_client import CommittedReader, TransactionalProducer
from support.storage.logs import read_all

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.client import Client, NewTopic, Record
from minikafka.client.administration.results import Resource, ResourceType
from minikafka.kafka.records.batch import records
from minikafka.simulation.clocks import ManualClock
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.files import NAMES, former_bytes
from minikafka.simulation.loop import run_seeded
from minikafka.simulation.ports import InlineExecutor
from minikafka.simulation.storage import MemoryStorage
from minikafka.storage.log.checkpoints import HIGH_WATERMARKS, decode_offsets
from minikafka.storage.log.manager import LogManager

T0 = TopicPartition("t", 0)
PATHS = ("/data", "/second", "/third")
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
Scenario = Callable[[MemoryCluster, Client], Awaitable[None]]


def run(
    scenario: Scenario, brokers: int = 1, topic: dict[str, str] | None = None, **config: object
) -> None:
    """Run a scenario on brokers with three log directories. Broker 0 leads `t`, in /data; all have a replica."""

    async def scene() -> None:
        keys = {"log_dirs": ",".join(PATHS), "log_segment_bytes": 2000, **config}
        async with MemoryCluster(brokers, **keys) as cluster, cluster.client() as user:
            assignment = {0: tuple(range(brokers))}
            await user.create_topics(NewTopic("t", assignment=assignment, configs=topic or {}))
            await scenario(cluster, user)

    run_seeded(1, scene())


async def produce(user: Client, *values: bytes) -> None:
    for value in values:
        await user.produce("t", [Record(value=value)], partition=0)


def some(count: int, first: int = 0) -> list[bytes]:
    return [b"%0100d" % number for number in range(first, first + count)]


async def values(user: Client) -> list[bytes]:
    """Return the values of all records of `t`, in order."""
    found: list[bytes] = []
    offset = (await user.list_offsets("t", "earliest"))[0]
    end = (await user.list_offsets("t", "latest"))[0]
    while offset < end:
        records = (await user.fetch("t", 0, offset)).records
        found += [record.value or b"" for record in records]
        offset = records[-1].offset + 1
    return found


def place(cluster: MemoryCluster, broker: int = 0) -> str:
    """Return the log directory from which the broker serves its replica."""
    log = cluster.brokers[broker].replicas.partitions[T0].log
    assert log.directory.endswith("/t-0"), log.directory
    return log.directory.removesuffix("/t-0")


def names(storage: MemoryStorage) -> list[str]:
    """Return the directories of the partition on a broker's disks, without the ids of copies and deleted logs."""
    return [
        f"{path}/t-0{name[36:]}"
        for path in PATHS
        for name in storage.names(path)
        if name.startswith("t-0")
    ]


async def move(user: Client, path: str, broker: int = 0) -> ErrorCode:
    """Ask for a move; return the error code."""
    return (await user.admin.alter_log_dirs(broker, {T0: path}))[T0].code


async def until_moved(cluster: MemoryCluster, path: str, broker: int = 0) -> None:
    """Wait until the replica is in the directory, and its former directory is renamed for deletion."""
    async with asyncio.timeout(60):
        while place(cluster, broker) != path or is_moving(cluster, broker):
            await cluster.clock.sleep(10)


async def start(cluster: MemoryCluster) -> None:
    """Start broker 0 again, and wait until it serves its replica."""
    broker = await cluster.start(0)
    while T0 not in broker.replicas.partitions:
        await cluster.clock.sleep(10)


def is_moving(cluster: MemoryCluster, broker: int = 0) -> bool:
    return bool(cluster.brokers[broker].replicas.moves.copied)


async def limit(user: Client, rate: int) -> None:
    """Limit the moves of broker 0 to this number of bytes per second."""
    await user.admin.alter_configs({Resource(ResourceType.BROKER, "0"): {RATE: str(rate)}})


def test_leader_is_moved_with_its_records_while_records_are_produced() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, *some(60))
        assert await move(user, "/second") == ErrorCode.NONE
        await produce(user, *some(60, 60))
        await until_moved(cluster, "/second")
        assert names(cluster.storages[0]) == ["/data/t-0-delete", "/second/t-0"]
        await produce(user, *some(20, 120))
        assert await values(user) == some(140)
        await cluster.clock.sleep(61_000)
        assert names(cluster.storages[0]) == ["/second/t-0"]
        await cluster.stop(0)
        await cluster.start(0)
        assert await values(user) == some(140)

    run(scenario)


class SlowExecutor(InlineExecutor):
    """Runs each function after a delay, in which the event loop goes on."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._clock = cluster.clock
        logs = cluster.brokers[0].logs
        logs.executor = logs.futures.executor = self

    async def run(self, function: Callable[[], Any]) -> Any:
        await self._clock.sleep(7)
        return await super().run(function)


class Crashes:
    """What a broker's disks have after a kill or a power loss before each of their changes, with what was acknowledged.

    At a power loss, file systems may have written any of the names that were not fsynced.
    """

    def __init__(self, storage: MemoryStorage) -> None:
        self.acknowledged: list[bytes] = []
        self.count = 0
        self._left: list[tuple[MemoryStorage, int, str]] = []
        self._storage = storage
        storage.before_change = self._before

    def _before(self, path: str) -> None:
        if "t-0" in path or path in PATHS:
            self.count += 1
            kinds = [self._storage.clone()]
            kinds += [self._storage.power_cut(former_bytes, model) for model in NAMES[::3]]
            self._left += [(left, len(self.acknowledged), path) for left in kinds]

    def end(self) -> None:
        self._storage.before_change = lambda path: None

    async def check(self) -> None:
        for left, count, path in self._left:
            config = BrokerConfig(broker_id=0, log_dirs=PATHS)
            logs = LogManager(left, config, ManualClock(), InlineExecutor())
            await logs.start()
            log = logs.get(T0)
            assert log is not None, path
            found = [record.value for record in records(read_all(log))]
            assert found[:count] == self.acknowledged[:count], path


def test_crash_at_any_step_of_a_move_loses_nothing_acknowledged() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, *some(30))
        SlowExecutor(cluster)
        crashes = Crashes(cluster.storages[0])
        crashes.acknowledged += some(30)
        await move(user, "/second")
        while is_moving(cluster) or place(cluster) != "/second":
            await produce(user, *some(1, len(crashes.acknowledged)))
            crashes.acknowledged += some(1, len(crashes.acknowledged))
            await cluster.clock.sleep(10)
        await produce(user, *some(1, len(crashes.acknowledged)))
        crashes.end()
        print(crashes.count, len(crashes._left), len(crashes.acknowledged))
        await crashes.check()

    run(scenario, log_flush_interval_messages=1)


@pytest.mark.parametrize("is_clean", [False, True])
def test_move_goes_on_after_a_restart(is_clean: bool) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, *some(60))
        await limit(user, 2000)
        await move(user, "/second")
        await cluster.clock.sleep(2_000)
        broker = cluster.brokers[0]
        broker.replicas.checkpoints.write_high_watermarks()
        checkpoint = cluster.storages[0].read(f"/second/{HIGH_WATERMARKS}")
        copied = broker.logs.futures.logs[T0].log_end_offset
        assert decode_offsets(checkpoint)[T0] <= copied
        if is_clean:
            await cluster.stop(0)
        else:
            cluster.kill_with_session(0)
        assert names(cluster.storages[0]) == ["/data/t-0", "/second/t-0-future"]
        await start(cluster)
        assert place(cluster) == "/data"
        copied = cluster.brokers[0].logs.futures.logs[T0].log_end_offset
        assert 0 < copied < 60
        await produce(user, *some(1, 60))
        await until_moved(cluster, "/second")
        assert await values(user) == some(61)

    run(scenario)


@pytest.mark.key("replica.alter.log.dirs.io.max.bytes.per.second")
def test_move_keeps_to_its_rate_which_may_change_meanwhile() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, *some(120))
        size = cluster.brokers[0].logs.logs[T0].size
        await limit(user, size // 20)
        begin = cluster.clock.now()
        await move(user, "/second")
        await cluster.clock.sleep(5_000)
        copied = cluster.brokers[0].logs.futures.logs[T0].size
        assert size // 5 < copied < size // 2
        await limit(user, size // 5)
        await until_moved(cluster, "/second")
        assert 7_000 < cluster.clock.now() - begin < 10_000

    run(scenario)


def test_move_is_cancelled_by_its_own_directory_and_redirected_by_another() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, *some(60))
        await limit(user, 0)
        storage = cluster.storages[0]
        assert await move(user, "/second") == ErrorCode.NONE
        assert await move(user, "/second") == ErrorCode.NONE
        assert names(storage) == ["/data/t-0", "/second/t-0-future"]
        assert await move(user, "/third") == ErrorCode.NONE
        assert names(storage) == ["/data/t-0", "/second/t-0-delete", "/third/t-0-future"]
        assert await move(user, "/data") == ErrorCode.NONE
        await cluster.clock.sleep(70_000)
        assert names(storage) == ["/data/t-0"]
        assert not is_moving(cluster)
        assert await move(user, "/data") == ErrorCode.NONE, "it is there already"
        await move(user, "/third")
        await limit(user, 1 << 40)
        await until_moved(cluster, "/third")
        assert await move(user, "/data") == ErrorCode.NONE
        await until_moved(cluster, "/data")
        assert await values(user) == some(60)

    run(scenario)


def test_refused_moves_get_the_error_codes_of_kafka() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        long, absent = TopicPartition("x" * 230, 0), TopicPartition("none", 0)
        await user.create_topics(NewTopic(long.topic, assignment={0: [0]}))
        asked = {long: "/second", absent: "/second"}
        got = await user.admin.alter_log_dirs(0, asked)
        assert got[long].code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert got[absent].code == ErrorCode.REPLICA_NOT_AVAILABLE
        assert await move(user, "/elsewhere") == ErrorCode.LOG_DIR_NOT_FOUND
        cluster.storages[0].fail("/third")
        await user.create_topics(NewTopic("u", assignment={0: [0]}))
        with suppress(KafkaError, TimeoutError):
            await user.produce("u", [Record(value=b"")], partition=0)
        while not cluster.brokers[0].logs.failed_directories:
            await cluster.clock.sleep(100)
        assert await move(user, "/third") == ErrorCode.KAFKA_STORAGE_ERROR
        assert await move(user, "/second") == ErrorCode.KAFKA_STORAGE_ERROR, "one is offline"

    run(scenario)


def test_replica_is_created_in_the_directory_that_was_asked_for_before() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await user.create_topics(NewTopic("u", assignment={0: [0]}))
        tp = TopicPartition("u", 0)
        got = await user.admin.alter_log_dirs(1, {tp: "/third"})
        assert got[tp].code == ErrorCode.REPLICA_NOT_AVAILABLE
        await user.admin.alter_reassignments({tp: [0, 1]})
        while tp not in cluster.brokers[1].logs.logs:
            await cluster.clock.sleep(10)
        assert cluster.brokers[1].logs.logs[tp].directory == "/third/u-0"

    run(scenario, brokers=2)


def test_topic_that_is_deleted_while_its_replica_is_moved_leaves_nothing() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, *some(60))
        await limit(user, 2000)
        await move(user, "/second")
        await cluster.clock.sleep(1_000)
        await user.delete_topics("t")
        await cluster.clock.sleep(70_000)
        assert names(cluster.storages[0]) == []
        assert not is_moving(cluster)
        assert cluster.brokers[0].logs.failed_directories == 0

    run(scenario)


@pytest.mark.parametrize("failed", ["/data", "/second"])
def test_disk_that_fails_while_a_replica_is_moved_takes_its_own_replicas_offline(
    failed: str,
) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, *some(60))
        await limit(user, 2000)
        await move(user, "/second")
        await cluster.clock.sleep(1_000)
        cluster.storages[0].fail(failed, errno.EIO)
        if failed == "/data":
            with suppress(KafkaError, TimeoutError):
                await produce(user, b"lost")
        while not cluster.brokers[0].logs.failed_directories:
            await cluster.clock.sleep(100)
        assert list(cluster.brokers[0].logs.offline_directories) == [failed]
        assert (T0 in cluster.brokers[0].logs.offline) == (failed == "/data")
        assert not is_moving(cluster)
        if failed == "/second":
            assert await values(user) == some(60)
        cluster.storages[0].heal()
        await cluster.stop(0)
        await start(cluster)
        await limit(user, 1 << 40)
        await until_moved(cluster, "/second")
        assert await values(user) == some(60)

    run(scenario)


def test_move_waits_while_the_disk_is_almost_full() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, *some(700))
        storage = cluster.storages[0]
        storage.room = lambda path: (1 << 30, 1 << 20)  # type: ignore[method-assign]
        await move(user, "/second")
        await cluster.clock.sleep(20_000)
        assert is_moving(cluster)
        assert cluster.brokers[0].logs.futures.logs[T0].log_end_offset == 0
        storage.room = lambda path: (1 << 30, 1 << 29)  # type: ignore[method-assign]
        await until_moved(cluster, "/second")
        assert await values(user) == some(700)

    run(scenario)


def test_transactions_go_on_while_their_partition_is_moved() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        payer = TransactionalProducer(cluster, "p")
        await payer.init()
        for number in range(6):
            await payer.produce(T0, b"%d" % number)
            if number % 3 == 1:
                await move(user, "/second" if number == 1 else "/third")
                await until_moved(cluster, "/second" if number == 1 else "/third")
                await payer.produce(T0, b"%d later" % number)
            await payer.end(commit=number != 4)
        reader = CommittedReader(cluster, T0)
        found = await reader.rest()
        assert found == [b"0", b"1", b"1 later", b"2", b"3", b"5"]
        reader.close()
        payer.close()

    few = {"replication_factor": 1, "min_isr": 1}
    run(scenario, **{f"transaction_state_log_{key}": value for key, value in few.items()})


def test_log_is_not_compacted_while_it_is_copied() -> None:
    """The copy could keep a record whose tombstone is removed before it is copied."""

    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        async def write(key: bytes, value: bytes | None) -> None:
            await user.produce("t", [Record(key=key, value=value)], partition=0)

        await write(b"gone", b"x" * 600)
        for number in range(30):
            await write(b"%d" % number, b"x" * 100)
        await limit(user, 100)
        await move(user, "/second")
        while not cluster.brokers[0].logs.futures.logs[T0].log_end_offset:
            await cluster.clock.sleep(100)
        await write(b"gone", None)
        for _ in range(3):
            for number in range(30):
                await write(b"%d" % number, b"y" * 100)
            await cluster.clock.sleep(10_000)
        await limit(user, 1 << 40)
        await until_moved(cluster, "/second")
        await write(b"last", b"x" * 3000)
        await cluster.clock.sleep(40_000)
        log = cluster.brokers[0].logs.logs[T0]
        found = [record.key for record in records(read_all(log)) if record.value is not None]
        assert b"gone" not in found
        assert log.gaps.first_dirty_offset, "it was compacted after the move"

    topic = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "0",
        "segment.bytes": "1500",
    }
    run(scenario, topic=topic, log_cleaner_backoff_ms=1000)


def test_copy_and_its_lag_are_described_as_a_future_replica() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, *some(60))
        await limit(user, 0)
        await move(user, "/second")
        found = await user.admin.describe_log_dirs()
        rows = {
            one.path: [(row.tp, row.is_future, row.offset_lag) for row in one.replicas]
            for one in found[0]
        }
        assert rows == {"/data": [(T0, False, 0)], "/second": [(T0, True, 60)], "/third": []}

    run(scenario)
