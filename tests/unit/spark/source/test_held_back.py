"""A query with read_committed names the open transaction that holds its records back, and never waits in silence."""

from __future__ import annotations

import logging

import pytest
from support.kafka.encoders import Sample, by_aiokafka
from support.spark.fetch_brokers import FetchBrokers

from minikafka.base.model import TopicPartition
from minikafka.spark.source import planning
from minikafka.spark.source.options import Mode, ReadOptions, parse
from minikafka.spark.source.planning import plan_batch
from minikafka.spark.source.ranges import DataLost, OffsetRange
from minikafka.spark.wire.leaders import Position

TP = TopicPartition("lines", 0)
OF_ORDERS = (
    "lines-0: records from offset 4 on are held back by an open transaction of transactional id my orders (producer 7,"
    " since offset 4); `minikafka transactions fence 'my orders'` aborts it now and fences its producer"
)


class Brokers(FetchBrokers):
    """Two brokers; the last stable offset of `lines-0` is 4, and its log ends at 10."""

    def __init__(self) -> None:
        super().__init__(2)
        self.producers = {9: 6, 7: 4, 8: -1}
        self.names = {1: {7: "my orders", 9: "others"}, 0: {}}
        (only,) = self.create("lines", 1)
        only.append(by_aiokafka([Sample(1, b"k", b"v")] * 10))
        only.last_stable = 4


@pytest.fixture
def brokers(monkeypatch):
    monkeypatch.setattr(planning, "_warned", set())
    monkeypatch.setattr(planning, "_LATE_END_S", 0.0)
    running = Brokers()
    yield running
    running.close()


@pytest.fixture
def warned(caplog):
    caplog.set_level(logging.WARNING)
    return lambda: [record.getMessage() for record in caplog.records]


def options(brokers: Brokers, mode: Mode = Mode.BATCH, **given: str) -> ReadOptions:
    least = {"kafka.bootstrap.servers": brokers.bootstrap, "subscribe": "lines"}
    return parse(least | {"kafka.isolation.level": "read_committed"} | given, mode)


def test_batch_ends_before_the_open_transaction_and_says_how_to_end_it(brokers, warned):
    for _ in range(2):
        assert plan_batch(options(brokers)) == [OffsetRange(TP, 0, 4)]
    assert warned() == [OF_ORDERS]
    uncommitted = options(brokers, **{"kafka.isolation.level": "read_uncommitted"})
    assert plan_batch(uncommitted) == [OffsetRange(TP, 0, 10)]
    assert len(warned()) == 1


def test_batch_that_ends_in_an_open_transaction_fails_with_its_name(brokers):
    given = {"endingOffsets": '{"lines":{"0":8}}'}
    with pytest.raises(DataLost, match=r"offset 8 is not committed: lines-0: .* id my orders"):
        plan_batch(options(brokers, **given))
    assert plan_batch(options(brokers, **given, failOnDataLoss="false")) == [OffsetRange(TP, 0, 4)]
    for end in ("4", "10"):
        given = {"endingOffsets": f'{{"lines":{{"0":{end}}}}}', "failOnDataLoss": "false"}
        assert plan_batch(options(brokers, **given)) == [OffsetRange(TP, 0, 4)]
    with pytest.raises(DataLost, match="offset 10 is not committed: lines-0"):
        plan_batch(options(brokers, endingOffsets='{"lines":{"0":10}}'))
    with pytest.raises(DataLost, match="offset 11 of lines-0 is not in the log"):
        plan_batch(options(brokers, endingOffsets='{"lines":{"0":11}}'))


def test_stream_that_waits_for_an_open_transaction_says_so_once(brokers, warned):
    stream = options(brokers, Mode.STREAM)
    assert planning.latest_positions(stream, {TP: Position(2, 0)})[TP].offset == 4
    assert warned() == []
    for _ in range(2):
        assert planning.latest_positions(stream, {TP: Position(4, 0)})[TP].offset == 4
    assert warned() == [OF_ORDERS]
    brokers.producers = {7: 4, 11: 3}
    planning.latest_positions(stream, {TP: Position(4, 0)})
    assert "of producer 11 (since offset 3), which no coordinator knows" in warned()[1]
    assert "`minikafka transactions abort lines-0 --start-offset 3`" in warned()[1]


def test_stream_that_has_read_beyond_the_last_stable_offset_waits_there(brokers, warned):
    stream = options(brokers, Mode.STREAM)
    for offset in (6, 10):
        start = {TP: Position(offset, 0)}
        found = planning.latest_positions(stream, start)
        assert found == start
        assert planning.plan_stream(stream, start, found) == []
    [text] = warned()
    assert text.startswith("lines-0: records from offset 6 on are held back")
    found = planning.latest_positions(stream, {TP: Position(12, 0)})
    assert found[TP].offset == 4  # the log itself is shorter, so this is a loss


def test_partition_without_an_open_transaction_costs_no_further_question(brokers, warned):
    brokers.topics["lines"][0].last_stable = 10
    plan_batch(options(brokers))
    assert not {61, 66} & {api for _, api in brokers.requests}


def test_transaction_that_has_ended_in_the_meantime_is_not_reported(brokers, warned):
    brokers.producers = {8: -1}
    assert plan_batch(options(brokers)) == [OffsetRange(TP, 0, 4)]
    assert warned() == []


@pytest.mark.parametrize("api", [61, 66])
def test_brokers_that_do_not_know_the_requests_leave_the_name_to_a_command(brokers, warned, api):
    brokers.unserved = {api}
    assert plan_batch(options(brokers)) == [OffsetRange(TP, 0, 4)]
    [text] = warned()
    assert text.startswith("lines-0: records from offset 4 on are held back by an open transaction")
    assert "`minikafka why lines-0` names i" in text
