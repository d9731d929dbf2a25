"""The member of `consume --group`: its end, its lines on standard error, and records that are not printed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.errors import IllegalStateError, InvalidGroupIdError, KafkaConnectionError
from aiokafka.structs import ConsumerRecord
from aiokafka.util import commit_structure_validate

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.cli.records.group_member import End, Session, Share, _translated
from minikafka.client import ConsumedRecord
from minikafka.client.waits import Waits

TP = TopicPartition("t", 0)
RECORD = ConsumerRecord("t", 0, 7, -1, 1, None, b"v", None, -1, 1, (("h", None),))


class Consumer:
    """A consumer that has read one partition up to the offset `read`; it returns RECORD again and again."""

    def __init__(self) -> None:
        self.read: int | None = 0
        self.sought: list[tuple[TopicPartition, int]] = []
        self.committed: dict[TopicPartition, int] = {}
        self.is_changing = False
        self.is_stopped = False
        self.has_positions = asyncio.Event()
        self.has_positions.set()
        self._client = self

    async def stop(self) -> None:
        """Fail as aiokafka does while it waits for the next fetch from a dead broker."""
        raise asyncio.CancelledError

    async def close(self) -> None:
        self.is_stopped = True

    async def position(self, tp: TopicPartition) -> int:
        await self.has_positions.wait()
        if self.read is None:
            raise IllegalStateError(f"{tp} is not assigned")
        return self.read

    async def getone(self) -> Any:
        return RECORD

    async def commit(self, offsets: dict[TopicPartition, int]) -> None:
        commit_structure_validate(offsets)
        if self.is_changing:
            raise IllegalStateError("No partitions assigned")
        self.committed |= offsets

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self.sought.append((tp, offset))


class Client:
    def __init__(self) -> None:
        self.waits = Waits()

    async def log_offsets(self, wanted: dict[TopicPartition, Any]) -> dict[TopicPartition, int]:
        return dict.fromkeys(wanted, 5)


def share_of(client: Client, quiet: bool = False, consumer: Consumer | None = None) -> Share:
    return Share(client, consumer or Consumer(), "g", quiet)  # type: ignore[arg-type]


def reading(count: int | None = None) -> Session:
    return Session("g", ("t",), "earliest", False, count, False)


async def test_end_is_not_reached_before_the_member_has_its_partitions() -> None:
    client, consumer = Client(), Consumer()
    share = share_of(client)
    end = End(client, consumer, share)  # type: ignore[arg-type]
    assert not await end.is_reached()
    await share.on_partitions_assigned([TP])
    assert not await end.is_reached()
    consumer.read = 5
    assert await end.is_reached()
    await share.on_partitions_revoked([TP])
    assert not await end.is_reached()


async def test_end_is_not_reached_when_a_rebalance_takes_the_partition() -> None:
    client, consumer = Client(), Consumer()
    share = share_of(client)
    await share.on_partitions_assigned([TP])
    consumer.read = None
    assert not await End(client, consumer, share).is_reached()  # type: ignore[arg-type]


async def test_share_tells_each_change_and_what_it_waits_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    client = Client()
    share = share_of(client)
    await share.on_partitions_revoked([])
    wait = client.waits.oldest()
    assert wait is not None
    assert wait.about == "the rebalance of group g"
    await share.on_partitions_assigned([TopicPartition("t", 1), TP])
    assert client.waits.oldest() is None
    await share.on_partitions_revoked([TP])
    assert client.waits.oldest() is not None
    await share.on_partitions_assigned([TP])
    share.close()
    assert client.waits.oldest() is None
    assert capsys.readouterr().err.splitlines() == [
        "% Group g: assigned t-0, t-1",
        "% Group g: gave up t-0, t-1",
        "% Group g: assigned t-0",
        "% Group g: gave up t-0",
    ]


async def test_quiet_share_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    share = share_of(Client(), quiet=True)
    await share.on_partitions_assigned([TP])
    share.close()
    assert capsys.readouterr().err == ""


async def test_records_keep_negative_timestamps_and_null_headers() -> None:
    found: list[ConsumedRecord] = []
    client, consumer = Client(), Consumer()
    await reading(2)._read(client, consumer, share_of(client), found.append)  # type: ignore[arg-type]
    assert found == [ConsumedRecord("t", 0, 7, -1, None, b"v", (("h", None),), True)] * 2


async def test_record_that_cannot_be_printed_is_not_committed() -> None:
    client, consumer = Client(), Consumer()
    share = share_of(client, consumer=consumer)
    shown: list[ConsumedRecord] = []

    def fail_later(record: ConsumedRecord) -> None:
        if shown:
            raise BrokenPipeError
        shown.append(record._replace(offset=7))

    with pytest.raises(BrokenPipeError):
        await reading()._read(client, consumer, share, fail_later)  # type: ignore[arg-type]
    await share.commit()
    assert consumer.committed == {TP: 8}
    assert share.printed == {}


async def test_member_reads_on_after_printed_records_when_its_topics_change() -> None:
    consumer = Consumer()
    share = share_of(Client(), consumer=consumer)
    await share.on_partitions_assigned([TP])
    share.printed[TP] = 8
    consumer.is_changing = True
    await share.on_partitions_revoked([TP])
    assert consumer.committed == {}
    consumer.is_changing = False
    await share.on_partitions_assigned([TP])
    assert consumer.sought == [(TP, 8)]
    await share.on_partitions_revoked([TP])
    assert consumer.committed == {TP: 8}


def test_errors_of_aiokafka_become_errors_of_this_project() -> None:
    refused = _translated(InvalidGroupIdError(), "group g")
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.INVALID_GROUP_ID
    assert "must not be empty" in str(refused)
    lost = _translated(KafkaConnectionError("no broker"), "group g")
    assert isinstance(lost, KafkaError)
    assert lost.code is ErrorCode.NETWORK_EXCEPTION


async def test_member_that_printed_nothing_commits_where_it_began() -> None:
    consumer = Consumer()
    consumer.read = 5
    share = share_of(Client(), consumer=consumer)
    await share.on_partitions_assigned([TP])
    await share.commit()
    assert consumer.committed == {TP: 5}


async def test_member_commits_where_it_began_in_partitions_without_printed_records() -> None:
    consumer = Consumer()
    consumer.read = 5
    consumer.has_positions.clear()  # the leaders have not answered yet when the partitions are assigned
    share = share_of(Client(), consumer=consumer)
    await share.on_partitions_assigned([TP, TopicPartition("t", 1)])
    share.printed[TP] = 8
    consumer.has_positions.set()
    await share.commit()
    assert consumer.committed == {TP: 8, TopicPartition("t", 1): 5}


async def test_first_record_is_not_committed_if_it_cannot_be_printed() -> None:
    client, consumer = Client(), Consumer()
    share = share_of(client, consumer=consumer)
    await share.on_partitions_assigned([TP])
    consumer.read = 8  # aiokafka counts a record as read when it returns the record

    def fail(record: ConsumedRecord) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        await reading()._read(client, consumer, share, fail)  # type: ignore[arg-type]
    await share.commit()
    assert consumer.committed == {TP: 7}


async def test_member_closes_its_connections_when_a_fetch_waits_for_a_dead_broker() -> None:
    consumer = Consumer()
    share = share_of(Client(), consumer=consumer)
    await reading()._leave(consumer, share)  # type: ignore[arg-type]
    assert consumer.is_stopped
