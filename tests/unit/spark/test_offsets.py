"""The offset ranges of a batch read, planned with brokers behind real sockets."""

from __future__ import annotations

import pytest
from support.encoders import Sample, by_aiokafka
from support.fetch_brokers import FetchBrokers

from minikafka.base.errors import ConfigError, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.spark import offsets
from minikafka.spark.leaders import Unreachable
from minikafka.spark.offsets import DataLost, OffsetRange, plan
from minikafka.spark.options import ReadOptions, parse

TEN = by_aiokafka([Sample(1, b"k", b"v")] * 10)


@pytest.fixture
def brokers():
    """Two brokers; topic `lines` with 10, 20 and 0 records in its partitions; partition 0 starts at
    offset 4.
    """
    running = FetchBrokers(2)
    first, second, _ = running.create("lines", 3)
    first.append(TEN)
    first.log_start = 4
    second.append(TEN)
    second.append(TEN)
    second.leader = 1
    yield running
    running.close()


@pytest.fixture
def options(brokers):
    def make(**given: str) -> ReadOptions:
        least = {"kafka.bootstrap.servers": brokers.bootstrap, "subscribe": "lines"}
        return parse(least | {name.replace("_", "."): text for name, text in given.items()})

    return make


def of(partition: int, start: int, end: int) -> OffsetRange:
    return OffsetRange(TopicPartition("lines", partition), start, end)


def test_default_range_covers_all_records_of_every_partition(options):
    assert plan(options()) == [of(0, 4, 10), of(1, 0, 20)]


def test_offsets_by_partition_define_the_ranges(options):
    starting = '{"lines":{"0":7,"1":-2,"2":0}}'
    ending = '{"lines":{"0":8,"1":-1,"2":-1}}'
    assert plan(options(startingOffsets=starting, endingOffsets=ending)) == [
        of(0, 7, 8),
        of(1, 0, 20),
    ]


def test_empty_range_is_left_out(options):
    starting = '{"lines":{"0":10,"1":5,"2":0}}'
    ending = '{"lines":{"0":-1,"1":5,"2":0}}'
    assert plan(options(startingOffsets=starting, endingOffsets=ending)) == []


@pytest.mark.parametrize("offset", [3, 11])
@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_offsets_outside_the_log_are_reported_as_lost(options, option, offset):
    given = {option: f'{{"lines":{{"0":{offset},"1":5,"2":0}}}}'}
    with pytest.raises(DataLost, match=f"offset {offset} of lines-0 .* 4 to 10.*failOnDataLoss"):
        plan(options(**given))


def test_remaining_records_are_read_without_fail_on_data_loss(options):
    starting = '{"lines":{"0":1,"1":5,"2":3}}'
    ending = '{"lines":{"0":9,"1":500,"2":9}}'
    given = options(startingOffsets=starting, endingOffsets=ending, failOnDataLoss="false")
    assert plan(given) == [of(0, 4, 9), of(1, 5, 20)]


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
@pytest.mark.parametrize(
    ("partitions", "message"),
    [
        ('{"0":5,"2":0}', "missing: lines-1"),
        ('{"0":5,"1":0,"2":0,"7":0}', "do not exist: lines-7"),
    ],
)
def test_offsets_must_name_exactly_the_existing_partitions(options, option, partitions, message):
    with pytest.raises(ConfigError, match=message):
        plan(options(**{option: f'{{"lines":{partitions}}}'}))


def test_start_beyond_the_end_is_refused(options):
    given = {
        "startingOffsets": '{"lines":{"0":9,"1":0,"2":0}}',
        "endingOffsets": '{"lines":{"0":8,"1":0,"2":0}}',
    }
    with pytest.raises(ConfigError, match="startingOffsets 9 of lines-0"):
        plan(options(**given))


def test_ranges_cover_several_topics(brokers, options):
    brokers.create("more", 1)[0].append(TEN)
    found = plan(options(subscribe="more,lines"))
    assert [str(wanted.tp) for wanted in found] == ["lines-0", "lines-1", "more-0"]


@pytest.mark.parametrize("subscribe", ["nothing,lines", "nothing,lines,zero"])
def test_missing_topics_are_named_with_advice(options, monkeypatch, subscribe):
    monkeypatch.setattr(offsets, "_NEW_TOPIC_S", 0.1)
    with pytest.raises(KafkaError) as caught:
        plan(options(subscribe=subscribe))
    names = ", ".join(name for name in subscribe.split(",") if name != "lines")
    assert str(caught.value) == (
        f"UNKNOWN_TOPIC_OR_PARTITION: {names}: no such topic; correct option subscribe, "
        "or create it"
    )


def test_dead_bootstrap_server_is_skipped(brokers, options):
    brokers.kill(0)
    brokers.move("lines", 0, 1)
    brokers.move("lines", 2, 1)
    assert plan(options()) == [of(0, 4, 10), of(1, 0, 20)]


def test_planning_fails_at_its_deadline_without_brokers(brokers, options):
    brokers.close()
    with pytest.raises(Unreachable, match="no broker answers"):
        plan(options(kafka_default_api_timeout_ms="200"))


def test_partition_without_a_live_leader_is_named(brokers, options):
    brokers.kill(1)
    with pytest.raises(Unreachable, match="lines-1"):
        plan(options(kafka_default_api_timeout_ms="300"))
