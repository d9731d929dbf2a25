"""The member of `consume --group`: its records, commits and end, and its lines on standard error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import (
    IllegalStateError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    KafkaConnectionError,
)
from aiokafka.util import commit_structure_validate
from support.clients.stub_groups import StubGroups
from support.until import until

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.client import Client, ConsumedRecord, OffsetAndMetadata, Record
from minikafka.kafka.records.batch import build
from minikafka.kafka.records.codecs import crc32c
from minikafka.kafka.records.header import CRC_AT, CRC_START, LOG_APPEND_TIME
from minikafka.simulation.transport import MemoryTransport
from minikafka.tools.cli.records import group_member
from minikafka.tools.cli.records.group_member import GroupReading, MemberPartitions, _translated

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


@pytest.fixture
async def cluster() -> AsyncIterator[StubGroups]:
    cluster = StubGroups(MemoryTransport())
    await cluster.start()
    cluster.create("t", [1, 2])
    for number in range(5):
        cluster.topics["t"][0].append(build([Record(timestamp=1, value=b"%d" % number)]))
    yield cluster
    await cluster.close()


@pytest.fixture
async def client(cluster: StubGroups) -> AsyncIterator[Client]:
    async with Client(cluster.bootstrap, transport=cluster.transport) as client:
        yield client


class Consumer:
    """aiokafka's consumer, as far as the member uses it; it keeps the committed offsets in the cluster."""

    def __init__(self, cluster: StubGroups) -> None:
        self.committed = cluster.committed
        self.paused: set[TopicPartition] = set()
        self.is_changing = False
        self.failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def getone(self) -> Any:
        await self.failed

    def pause(self, *partitions: TopicPartition) -> None:
        self.paused.update(partitions)

    def seek(self, tp: TopicPartition, offset: int) -> None: ...

    async def commit(self, offsets: dict[Any, int]) -> None:
        commit_structure_validate(offsets)
        if self.is_changing:
            raise IllegalStateError("No partitions assigned")
        for tp, offset in offsets.items():
            self.committed[TopicPartition(*tp)] = OffsetAndMetadata(offset)


class Running:
    """A member whose `run` is a task. `values`: the printed values."""

    def __init__(self, client: Client, cluster: StubGroups, session: GroupReading) -> None:
        self.records: list[ConsumedRecord] = []
        self.consumer = Consumer(cluster)
        self.fails_at: int | None = None
        self.member = MemberPartitions(session, client, self.consumer, self._show)
        self.task = asyncio.ensure_future(self.member.run())

    def _show(self, record: ConsumedRecord) -> None:
        if record.offset == self.fails_at:
            raise BrokenPipeError
        self.records.append(record)

    def offsets(self) -> list[int]:
        return [record.offset for record in self.records]

    async def assign(self, *partitions: TopicPartition) -> None:
        await self.member.on_partitions_assigned(partitions)

    async def revoke(self) -> None:
        await self.member.on_partitions_revoked(())

    async def interrupt(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


def session(
    until_end: bool = False, count: int | None = None, start: Any = "earliest", quiet: bool = False
) -> GroupReading:
    return GroupReading("g", ("t",), start, until_end, count, quiet)


@pytest.fixture
async def running(client: Client, cluster: StubGroups) -> AsyncIterator[Running]:
    running = Running(client, cluster, session())
    yield running
    await running.interrupt()


def at(running: Running, tp: TopicPartition = TP) -> int | None:
    found = running.consumer.committed.get(tp)
    return found and found.offset


def with_crc(batch: bytes) -> bytes:
    return batch[:CRC_AT] + crc32c(batch[CRC_START:]).to_bytes(4, "big") + batch[CRC_START:]


async def test_member_ends_at_the_end_that_its_partitions_had_when_assigned(
    client: Client, cluster: StubGroups
) -> None:
    running = Running(client, cluster, session(until_end=True))
    await asyncio.sleep(0)
    assert not running.task.done()  # it has no partitions yet
    await running.assign(TP, OTHER)
    await running.task
    assert running.offsets() == [0, 1, 2, 3, 4]
    assert (at(running), at(running, OTHER)) == (5, 0)


async def test_member_does_not_end_when_a_rebalance_takes_its_partition(
    client: Client, cluster: StubGroups
) -> None:
    running = Running(client, cluster, session(until_end=True))
    await running.assign(TP)
    await running.revoke()
    await asyncio.sleep(0)
    assert not running.task.done()
    await running.assign(TP)
    await running.task
    assert running.offsets() == [0, 1, 2, 3, 4]


async def test_member_tells_each_change_and_what_it_waits_for(
    client: Client, running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    wait = client.waits.oldest()
    assert wait is not None
    assert wait.about == "the rebalance of group g"
    await running.assign(OTHER, TP)
    assert client.waits.oldest() is not wait
    await until(lambda: len(running.records) == 5)
    await running.revoke()
    wait = client.waits.oldest()
    assert wait is not None
    assert wait.about == "the rebalance of group g"
    await running.assign(TP)
    await running.interrupt()
    assert client.waits.oldest() is None
    assert capsys.readouterr().err.splitlines() == [
        "% Group g: assigned t-0, t-1",
        "% Group g: gave up t-0, t-1",
        "% Group g: assigned t-0",
        "% Group g: gave up t-0",
    ]


async def test_member_takes_no_partition_when_a_join_ends_after_the_command(
    running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    await asyncio.sleep(0)
    await running.interrupt()
    await running.assign(TP)
    assert running.member.partitions == []
    assert capsys.readouterr().err == ""


async def test_quiet_member_prints_nothing(
    client: Client, cluster: StubGroups, capsys: pytest.CaptureFixture[str]
) -> None:
    running = Running(client, cluster, session(until_end=True, quiet=True))
    await running.assign(TP)
    await running.task
    assert capsys.readouterr().err == ""


async def test_records_keep_all_values_that_a_record_may_have(
    client: Client, cluster: StubGroups
) -> None:
    batch = build(
        [Record(timestamp=-1, headers=(("h", None), ("name", b"v")))], attributes=LOG_APPEND_TIME
    )
    cluster.topics["t"][1].append(with_crc(batch.replace(b"name", b"n\xff\xfee")))
    running = Running(client, cluster, session(count=1))
    await running.assign(OTHER)
    await running.task
    headers = (("h", None), ("n\ufffd\ufffde", b"v"))
    (record,) = running.records
    assert record._replace(timestamp=0) == ConsumedRecord(
        "t", 1, 0, 0, None, None, headers, has_append_time=True
    )


async def test_aiokafka_fetches_no_record_of_the_member(running: Running) -> None:
    await running.assign(TP, OTHER)
    assert running.consumer.paused == {TP, OTHER}


@pytest.mark.parametrize("fails_at", [0, 1])
async def test_record_that_cannot_be_printed_is_not_committed(
    running: Running, fails_at: int
) -> None:
    running.fails_at = fails_at
    await running.assign(TP)
    with pytest.raises(BrokenPipeError):
        await running.task
    assert at(running) == fails_at


async def test_member_that_has_printed_its_number_of_records_commits_only_these(
    client: Client, cluster: StubGroups
) -> None:
    running = Running(client, cluster, session(count=2))
    await running.assign(TP)
    await running.task
    assert (running.offsets(), at(running)) == ([0, 1], 2)


async def test_member_reads_on_after_printed_records_when_its_topics_change(
    running: Running,
) -> None:
    await running.assign(TP)
    await until(lambda: len(running.records) == 5)
    running.consumer.is_changing = True
    await running.revoke()
    assert at(running) is None
    running.consumer.is_changing = False
    await running.assign(TP, OTHER)
    await until(lambda: OTHER in running.member._reader.positions)
    await running.revoke()
    assert (running.offsets(), at(running)) == ([0, 1, 2, 3, 4], 5)


async def test_member_reads_from_the_committed_offsets(client: Client, cluster: StubGroups) -> None:
    cluster.committed[TP] = OffsetAndMetadata(3)
    running = Running(client, cluster, session(until_end=True))
    await running.assign(TP)
    await running.task
    assert running.offsets() == [3, 4]


async def test_member_begins_again_where_the_committed_offset_is_outside_of_the_log(
    client: Client, cluster: StubGroups
) -> None:
    cluster.committed[TP] = OffsetAndMetadata(99)
    running = Running(client, cluster, session(count=1))
    await running.assign(TP)
    await running.task
    assert (running.offsets(), at(running)) == ([0], 1)


async def test_partition_without_a_leader_does_not_delay_the_other_partitions(
    cluster: StubGroups, running: Running
) -> None:
    cluster.lead("t", 1, -1)
    await running.assign(TP, OTHER)
    await until(lambda: len(running.records) == 5)
    await running.revoke()
    assert (at(running), at(running, OTHER)) == (5, None)


async def test_member_that_printed_nothing_commits_where_it_began(
    client: Client, cluster: StubGroups
) -> None:
    running = Running(client, cluster, session(start="latest"))
    await running.assign(TP, OTHER)
    await until(lambda: running.member._reader.positions.get(TP) == 5)
    await running.interrupt()
    assert (at(running), at(running, OTHER)) == (5, 0)


async def test_error_of_aiokafka_ends_the_member(running: Running) -> None:
    await running.assign(TP)
    running.consumer.failed.set_exception(InvalidGroupIdError())
    with pytest.raises(InvalidGroupIdError):
        await running.task


async def test_member_offers_the_other_assignor_if_the_group_does_not_use_the_first(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered: list[Any] = []

    class Refused:
        def __init__(self, **settings: Any) -> None:
            offered.append(settings["partition_assignment_strategy"])

        async def start(self) -> None:
            raise InconsistentGroupProtocolError

        async def stop(self) -> None: ...

    monkeypatch.setattr(group_member, "AIOKafkaConsumer", Refused)
    with pytest.raises(KafkaError, match="INCONSISTENT_GROUP_PROTOCOL"):
        await session().run(client, "", lambda record: None)
    assert offered == [(RangePartitionAssignor,), (RoundRobinPartitionAssignor,)]


def test_errors_of_aiokafka_become_errors_of_this_project() -> None:
    refused = _translated(InvalidGroupIdError(), "group g")
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.INVALID_GROUP_ID
    assert "must not be empty" in str(refused)
    lost = _translated(KafkaConnectionError("no broker"), "group g")
    assert isinstance(lost, KafkaError)
    assert lost.code is ErrorCode.NETWORK_EXCEPTION
