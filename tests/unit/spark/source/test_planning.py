"""The offset ranges of batch reads and micro-batches, planned with brokers behind real sockets."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, In, LessThan
from support.kafka.encoders import Sample, by_aiokafka
from support.spark.fetch_brokers import FetchBrokers

from minikafka.base.errors import ConfigError, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.spark.source import planning
from minikafka.spark.source.filters import select
from minikafka.spark.source.options import Mode, ReadOptions, parse
from minikafka.spark.source.planning import plan_batch
from minikafka.spark.source.positions import Positions, from_json, to_json
from minikafka.spark.source.ranges import DataLost, OffsetRange
from minikafka.spark.source.readers import StreamReader
from minikafka.spark.wire import leaders
from minikafka.spark.wire.leaders import Position, Unreachable

TEN = by_aiokafka([Sample(1, b"k", b"v")] * 10)


@pytest.fixture
def brokers():
    """Yield two brokers with the topic `lines`, whose partitions have end offsets 10, 20 and 0.

    The log start offset of partition 0 is 4.
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
    def make(mode: Mode = Mode.BATCH, **given: str) -> ReadOptions:
        least = {"kafka.bootstrap.servers": brokers.bootstrap}
        if not given.keys() & {"subscribePattern", "assign"}:
            least["subscribe"] = "lines"
        return parse(least | {name.replace("_", "."): text for name, text in given.items()}, mode)

    return make


def of(partition: int, start: int, end: int) -> OffsetRange:
    return OffsetRange(TopicPartition("lines", partition), start, end)


def test_default_range_covers_all_records_of_every_partition(options):
    assert plan_batch(options()) == [of(0, 4, 10), of(1, 0, 20)]


def test_offsets_by_partition_define_the_ranges(options):
    starting = '{"lines":{"0":7,"1":-2,"2":0}}'
    ending = '{"lines":{"0":8,"1":-1,"2":-1}}'
    assert plan_batch(options(startingOffsets=starting, endingOffsets=ending)) == [
        of(0, 7, 8),
        of(1, 0, 20),
    ]


def test_empty_range_is_left_out(options):
    starting = '{"lines":{"0":10,"1":5,"2":0}}'
    ending = '{"lines":{"0":-1,"1":5,"2":0}}'
    assert plan_batch(options(startingOffsets=starting, endingOffsets=ending)) == []


@pytest.mark.parametrize("offset", [3, 11])
@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_offsets_outside_the_log_are_reported_as_lost(options, option, offset):
    given = {option: f'{{"lines":{{"0":{offset},"1":5,"2":0}}}}'}
    with pytest.raises(DataLost, match=f"offset {offset} of lines-0 .* 4 to 10.*failOnDataLoss"):
        plan_batch(options(**given))


def test_lost_offsets_are_left_out_of_the_plan_if_fail_on_data_loss_is_off(options):
    starting = '{"lines":{"0":1,"1":5,"2":3}}'
    ending = '{"lines":{"0":9,"1":500,"2":9}}'
    given = options(startingOffsets=starting, endingOffsets=ending, failOnDataLoss="false")
    assert plan_batch(given) == [of(0, 4, 9), of(1, 5, 20)]


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
        plan_batch(options(**{option: f'{{"lines":{partitions}}}'}))


def test_start_beyond_the_end_is_refused(options):
    given = {
        "startingOffsets": '{"lines":{"0":9,"1":0,"2":0}}',
        "endingOffsets": '{"lines":{"0":8,"1":0,"2":0}}',
    }
    with pytest.raises(ConfigError, match="start of lines-0 at offset 9, beyond its end 8"):
        plan_batch(options(**given))


def test_ranges_cover_several_topics(brokers, options):
    brokers.create("more", 1)[0].append(TEN)
    found = plan_batch(options(subscribe="more,lines"))
    assert [str(wanted.tp) for wanted in found] == ["lines-0", "lines-1", "more-0"]


@pytest.mark.parametrize("subscribe", ["nothing,lines", "nothing,lines,zero"])
def test_planning_error_names_missing_topics_and_says_what_to_do(options, monkeypatch, subscribe):
    monkeypatch.setattr(leaders, "_NEW_TOPIC_S", 0.1)
    with pytest.raises(KafkaError) as caught:
        plan_batch(options(subscribe=subscribe))
    names = ", ".join(name for name in subscribe.split(",") if name != "lines")
    assert str(caught.value) == (
        f"UNKNOWN_TOPIC_OR_PARTITION: {names}: no such topic; correct option subscribe, "
        "or create it"
    )


def test_dead_bootstrap_server_is_skipped(brokers, options):
    brokers.kill(0)
    brokers.move("lines", 0, 1)
    brokers.move("lines", 2, 1)
    assert plan_batch(options()) == [of(0, 4, 10), of(1, 0, 20)]


def test_planning_fails_at_its_deadline_without_brokers(brokers, options):
    for broker in brokers.ports:
        brokers.kill(broker)
    with pytest.raises(Unreachable, match="no broker answers"):
        plan_batch(options(kafka_default_api_timeout_ms="200"))


def test_planning_error_names_a_partition_without_a_live_leader(brokers, options):
    brokers.kill(1)
    with pytest.raises(Unreachable, match="lines-1"):
        plan_batch(options(kafka_default_api_timeout_ms="300"))


def test_pattern_selects_matching_topics_that_are_not_internal(brokers, options):
    for name in ("more-lines", "others", "__lines"):
        brokers.create(name)[0].append(TEN)
    found = plan_batch(options(subscribePattern="^more|ines$"))
    assert [str(wanted.tp) for wanted in found] == ["lines-0", "lines-1", "more-lines-0"]


def test_pattern_that_matches_no_topic_gives_an_empty_plan(options):
    assert plan_batch(options(subscribePattern="nothing")) == []


def test_assigned_partitions_are_planned_and_a_missing_one_is_refused(options, monkeypatch):
    assert plan_batch(options(assign='{"lines":[1]}')) == [of(1, 0, 20)]
    monkeypatch.setattr(leaders, "_NEW_TOPIC_S", 0.1)
    with pytest.raises(KafkaError, match="lines-7: no such partition; correct option assign"):
        plan_batch(options(assign='{"lines":[1,7]}'))


def test_max_records_per_partition_splits_the_ranges(options):
    found = plan_batch(options(maxRecordsPerPartition="8"))
    assert found == [of(0, 4, 10), of(1, 0, 6), of(1, 6, 13), of(1, 13, 20)]


def stream(options, **given: str) -> ReadOptions:
    return options(mode=Mode.STREAM, **given)


def at(**offsets: tuple[int, int]) -> Positions:
    """Return positions by partition: `p0=(offset, leader epoch)` for partition 0, and so on."""
    return {TopicPartition("lines", int(name[1:])): Position(*at) for name, at in offsets.items()}


EMPTY_START = at(p0=(10, 0), p1=(20, 0), p2=(0, 0))


def test_stream_starts_at_the_end_by_default(options):
    assert planning.first_positions(stream(options)) == EMPTY_START
    earliest = planning.first_positions(stream(options, startingOffsets="earliest"))
    assert earliest == at(p0=(4, 0), p1=(0, 0), p2=(0, 0))


def test_micro_batch_covers_the_offsets_between_two_positions(brokers, options):
    brokers.topics["lines"][2].append(TEN)
    end = planning.latest_positions(stream(options), EMPTY_START)
    assert planning.plan_stream(stream(options), EMPTY_START, end) == [of(2, 0, 10)]


def test_new_partition_is_read_from_its_start(brokers, options):
    start = at(p0=(10, 0), p1=(20, 0))
    brokers.topics["lines"][2].append(TEN)
    end = planning.latest_positions(stream(options), start)
    assert planning.plan_stream(stream(options), start, end) == [of(2, 0, 10)]


def test_lost_first_records_of_a_new_partition_are_reported(options):
    start = at(p1=(20, 0), p2=(0, 0))
    with pytest.raises(DataLost, match="new partition lines-0 starts at offset 4 instead of 0"):
        planning.plan_stream(stream(options), start, EMPTY_START)
    given = stream(options, failOnDataLoss="false")
    assert planning.plan_stream(given, start, EMPTY_START) == [of(0, 4, 10)]


def test_deleted_partition_of_the_checkpoint_is_reported(options):
    start = EMPTY_START | at(p3=(5, 0))
    with pytest.raises(DataLost, match="lines-3 of the checkpoint were deleted, or this query"):
        planning.plan_stream(stream(options), start, EMPTY_START)


def test_leader_change_without_loss_is_not_reported(brokers, options):
    brokers.move("lines", 1, 0)
    brokers.topics["lines"][1].append(TEN)
    end = planning.latest_positions(stream(options), EMPTY_START)
    assert end[TopicPartition("lines", 1)] == Position(30, 1)
    assert planning.plan_stream(stream(options), EMPTY_START, end) == [of(1, 20, 30)]


@pytest.mark.parametrize("appended", [0, 1, 2])
def test_data_loss_error_explains_a_truncation_below_records_already_read(
    brokers, options, monkeypatch, appended
):
    """After the truncation and the appends, the log ends below, at, or above the offset that was already read."""
    monkeypatch.setattr(planning, "_LATE_END_S", 0.1)
    partition = brokers.topics["lines"][1]
    partition.truncate(10)
    brokers.move("lines", 1, 0)
    for _ in range(appended):
        partition.append(TEN)
    given = stream(options)
    end = planning.latest_positions(given, EMPTY_START)
    with pytest.raises(
        DataLost, match=r"records 10 to 19 of lines-1 were read .* epoch 0 ends at offset 10"
    ):
        planning.plan_stream(given, EMPTY_START, end)
    tolerant = stream(options, failOnDataLoss="false")
    expected = [of(1, 10, 10 + 10 * appended)] if appended else []
    assert planning.plan_stream(tolerant, EMPTY_START, end) == expected


@pytest.mark.parametrize(
    "start",
    [at(p0=(10, 3), p1=(20, 3)), at(p0=(11, 0), p1=(20, 0)), at(p0=(11, -1), p1=(20, -1))],
)
def test_topic_created_again_is_recognized_by_lower_epoch_or_shorter_log(options, start):
    """The new topic has a lower leader epoch, or a shorter log in the same or an unknown leader epoch."""
    start = EMPTY_START | start
    with pytest.raises(DataLost, match="lines-0 was deleted and created again"):
        planning.plan_stream(stream(options), start, EMPTY_START)


@pytest.mark.parametrize(("limits", "count"), [({}, 30), ({"maxOffsetsPerTrigger": "4"}, 4)])
def test_topic_created_again_is_recognized_by_its_id(brokers, options, limits, count):
    given = stream(options, failOnDataLoss="false", **limits)
    brokers.topic_ids["lines"] = bytes(15) + b"\x01"
    start = to_json(planning.latest_positions(given, {}))
    brokers.topic_ids["lines"] = bytes(15) + b"\x02"
    again = brokers.create("lines", 3)[0]
    for _ in range(3):
        again.append(TEN)
    reader = StreamReader(given)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    found = [one for task in reader.partitions(start, end) for one in task.ranges]
    assert found == [of(0, 0, count)]
    explained = (
        "lines-0 was deleted and created again: it was read up to offset 10 with the topic id A+Q"
    )
    with pytest.raises(DataLost, match=explained):
        planning.plan_stream(stream(options), from_json(start), from_json(end))


def test_end_offset_below_the_start_is_requested_again(brokers, options):
    partition = brokers.topics["lines"][1]
    partition.high_watermark = 10
    given = stream(options)
    asked = brokers.on_list_offsets
    # Each of the two leaders is asked once per attempt. The log is long enough in the second attempt.
    asked += [lambda: None, lambda: None, lambda: None]
    asked.append(lambda: setattr(partition, "high_watermark", 20))
    assert planning.latest_positions(given, EMPTY_START) == EMPTY_START
    assert asked == []


def test_stream_that_has_read_everything_asks_for_the_ends_once(brokers, options):
    read = {TopicPartition("lines", n): Position(at, 0) for n, at in enumerate((10, 20, 0))}
    planning.latest_positions(options(Mode.STREAM), read)
    assert sorted(index for index, api in brokers.requests if api == 2) == [0, 1]


def test_ending_time_after_the_last_record_is_the_end_of_the_partition(brokers, options):
    for partition in brokers.topics["lines"]:
        partition.last_time = 1_000
    assert plan_batch(options(endingTimestamp="2000")) == [of(0, 4, 10), of(1, 0, 20)]
    assert plan_batch(options(endingTimestamp="1000")) == []


def test_committed_records_end_at_the_last_stable_offset(brokers, options):
    brokers.topics["lines"][1].last_stable = 7
    given = {"kafka_isolation_level": "read_committed"}
    assert plan_batch(options(**given)) == [of(0, 4, 10), of(1, 0, 7)]
    stream_options = options(Mode.STREAM, **given)
    assert planning.latest_positions(stream_options, {})[TopicPartition("lines", 1)].offset == 7


def test_tasks_ask_different_servers_first_and_know_all_of_them(brokers, options):
    ports = list(brokers.ports.values())
    for first in range(3):
        leaders = planning.connect(options(), first)
        asked = [port for _, port in leaders._servers]
        assert asked == [ports[first % 2], ports[(first + 1) % 2]]


def test_tasks_are_limited_and_stay_the_same_when_leaders_move(brokers, options):
    lines = brokers.create("lines", 40)
    for number, partition in enumerate(lines):
        partition.leader = number % 2
        partition.append(TEN)
    given = options(maxTasks="4")
    found = planning.tasks(given, plan_batch(given))
    assert [len(ranges) for ranges in found] == [10] * 4
    for number, partition in enumerate(lines):
        partition.leader = number // 20
    assert planning.tasks(given, plan_batch(given)) == found
    assert {wanted for ranges in found for wanted in ranges} == {
        of(number, 0, 10) for number in range(40)
    }


@pytest.mark.parametrize(
    ("given", "count"), [({}, 3), ({"minPartitions": "9"}, 9), ({"maxTasks": "100"}, 40)]
)
def test_few_records_are_one_task_per_core_unless_more_are_asked_for(
    brokers, options, monkeypatch, given, count
):
    monkeypatch.setenv("MINIKAFKA_SPARK_CORES", "3")
    for partition in brokers.create("lines", 40):
        partition.append(TEN)
    chosen = options(**given)
    assert len(planning.tasks(chosen, plan_batch(chosen))) == count


def test_planning_calls_share_their_connections(brokers, options):
    given = options(kafka_client_id="shared")
    for _ in range(5):
        plan_batch(given)
        planning.tasks(given, [])
    assert sum(map(len, brokers.connections.values())) <= len(brokers.ports)


def test_connection_that_a_broker_has_closed_is_opened_again_at_once(brokers, options):
    given = stream(options)
    before = planning.latest_positions(given, {})
    asked = len(brokers.requests)
    for index in list(brokers.ports):
        brokers.kill(index)
        brokers.start(index)
    assert planning.latest_positions(given, {}) == before
    assert len(brokers.requests) == asked + 3  # the metadata, and the offsets from two leaders


def test_partitions_of_a_deleted_topic_are_not_planned_again(brokers, options):
    brokers.create("more")[0].append(TEN)
    given = options(subscribePattern="lines|more")
    assert len(plan_batch(given)) == 3
    del brokers.topics["more"]
    assert len(plan_batch(given)) == 2


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([EqualTo(("partition",), 1), LessThan(("offset",), 7)], [(1, 0, 7)]),
        ([GreaterThan(("timestamp",), datetime(1970, 1, 1, tzinfo=UTC))], [(0, 4, 10), (1, 0, 20)]),
        ([GreaterThan(("timestamp",), datetime(1970, 1, 2, tzinfo=UTC))], [(1, 0, 20)]),
        ([In(("offset",), (3, 10, 19))], [(1, 3, 20)]),
        ([EqualTo(("topic",), "other")], []),
    ],
)
def test_filters_narrow_the_ranges_of_a_batch(options, brokers, filters, expected):
    brokers.topics["lines"][0].last_time = 1_000
    found = plan_batch(options(), select(filters))
    assert found == [of(*one) for one in expected]


def test_filters_narrow_the_range_before_it_is_split_into_tasks(options):
    selection = select([EqualTo(("partition",), 1), LessThan(("offset",), 4)])
    assert plan_batch(options(minPartitions="2"), selection) == [of(1, 0, 2), of(1, 2, 4)]


def test_loss_is_reported_for_a_partition_that_the_filters_exclude(options):
    starting = '{"lines":{"0":3,"1":5,"2":0}}'
    with pytest.raises(DataLost, match="offset 3 of lines-0"):
        plan_batch(options(startingOffsets=starting), select([EqualTo(("partition",), 1)]))


def test_topic_created_again_without_an_id_is_planned_with_its_new_leaders(brokers, options):
    for leader in (1, 0, 1):
        brokers.move("lines", 0, leader)
    plan_batch(options())
    brokers.create("lines")[0].append(TEN)  # broker 0 leads, in leader epoch 0
    assert plan_batch(options(kafka_default_api_timeout_ms="3000")) == [of(0, 0, 10)]
