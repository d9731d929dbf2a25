"""Fetch encoding and decoding, compared with the codec of messages."""

from __future__ import annotations

from itertools import product

import pytest
from support.cases import for_each

from minikafka.base.errors import ProtocolViolation
from minikafka.base.fetch_rows import PartitionData
from minikafka.base.model import Node
from minikafka.kafka.wire import fetch
from minikafka.kafka.wire.codec import decode_request, decode_response, encode_request, request
from minikafka.kafka.wire.current_leaders import CurrentLeaders

VERSIONS = range(4, 18)
BODY = 14 + len("client")


def topic_of(version: int, name: bytes) -> bytes:
    """Return a topic as a request of this version names it: its name, or an id that contains the name."""
    return name if version < fetch.TOPIC_IDS_SINCE else name.rjust(16, b"-")


def named(name: str, **fields: object) -> dict[str, object]:
    """Return the fields of a topic in a request of any version."""
    return {"topic": name, "topic_id": topic_of(13, name.encode()), **fields}


def frame(version: int, *, broker: int = -1) -> bytearray:
    row = {
        "partition": 3, "current_leader_epoch": 8, "fetch_offset": 100, "last_fetched_epoch": 7,
        "log_start_offset": 2, "partition_max_bytes": 4096,
    }  # fmt: skip
    body = request(
        1,
        version,
        replica_id=broker,
        replica_state={"replica_id": broker, "replica_epoch": 5},
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=1,
        session_id=0,
        session_epoch=-1,
        topics=[
            named("a", partitions=[row, {**row, "partition": 4}]),
            named("bb", partitions=[row]),
        ],
        forgotten_topics_data=[named("gone", partitions=[1, 2])],
        rack_id="cellar",
    )
    return bytearray(encode_request(1, version, 7, "client", body))


@pytest.mark.parametrize("version", VERSIONS)
def test_request_encoded_from_the_table_is_decoded_in_every_version(version: int) -> None:
    buf = frame(version)
    decoded = fetch.decode(buf, memoryview(buf), BODY, len(buf), version)
    assert (decoded.replica_id, decoded.max_wait_ms, decoded.min_bytes) == (-1, 500, 1)
    assert decoded.read_committed
    epoch = 8 if version >= 9 else -1
    last = 7 if version >= 12 else -1
    start = 2 if version >= 5 else -1
    row = (3, epoch, 100, last, start, 4096)
    a, bb, gone = (topic_of(version, name) for name in (b"a", b"bb", b"gone"))
    assert decoded.topics == [(a, [row, (4, *row[1:])]), (bb, [row])]
    assert decoded.forgotten == ([(gone, [1, 2])] if version >= 7 else [])
    assert decoded.rack == (b"cellar" if version >= 11 else b"")


@pytest.mark.parametrize("version", VERSIONS)
def test_replica_id_of_a_broker_is_decoded_in_every_version(version: int) -> None:
    buf = frame(version, broker=9)
    assert fetch.decode(buf, memoryview(buf), BODY, len(buf), version).replica_id == 9


def test_directory_id_and_unknown_tags_of_a_version_17_request_are_ignored() -> None:
    row = {"partition": 3, "fetch_offset": 100, "replica_directory_id": b"d" * 16}
    topics = [named("a", partitions=[row, {"partition": 4, "fetch_offset": 7}])]
    buf = bytearray(encode_request(1, 17, 7, "client", request(1, 17, topics=topics)))
    assert b"d" * 16 in buf
    ((_, rows),) = fetch.decode(buf, memoryview(buf), BODY, len(buf), 17).topics
    assert [(row[0], row[2]) for row in rows] == [(3, 100), (4, 7)]


@pytest.mark.parametrize("version", VERSIONS)
def test_request_decoder_yields_after_each_topic_and_every_256_partitions(version: int) -> None:
    rows = [{"partition": n, "fetch_offset": n} for n in range(10 * fetch.STEP_ROWS + 1)]
    topics = [named("a", partitions=rows), named("b", partitions=rows[:1])]
    body = request(1, version, topics=topics)
    buf = bytearray(encode_request(1, version, 7, "client", body))
    steps = fetch.decode_in_steps(buf, memoryview(buf), BODY, len(buf), version)
    assert sum(1 for _ in steps) == 12
    decoded = fetch.decode(buf, memoryview(buf), BODY, len(buf), version)
    (a, first), (b, second) = decoded.topics
    assert [row[0] for row in first] == list(range(10 * fetch.STEP_ROWS + 1))
    assert (a, b, len(second)) == (topic_of(version, b"a"), topic_of(version, b"b"), 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_response_encoder_yields_after_every_256_partitions_of_a_topic(version: int) -> None:
    rows = [PartitionData(n, 0, n, n, 0, (), 0) for n in range(10 * fetch.STEP_ROWS)]
    topics = [(topic_of(version, b"a"), rows)]
    steps = fetch.encode_response_in_steps(7, version, 0, 0, topics)
    assert sum(1 for _ in steps) == 10
    (topic,) = decode_response(
        1, version, b"".join(fetch.encode_response(7, version, 0, 0, topics))[4:]
    ).responses
    assert [row.high_watermark for row in topic.partitions] == list(range(len(rows)))


@pytest.mark.parametrize("version", VERSIONS)
def test_response_encoder_yields_once_for_256_topics_of_one_partition(version: int) -> None:
    topics = [(b"%d" % n, [PartitionData(0, 0, n, n, 0, (), 0)]) for n in range(fetch.STEP_ROWS)]
    steps = fetch.encode_response_in_steps(7, version, 0, 0, topics)
    assert sum(1 for _ in steps) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_truncated_request_raises_a_protocol_violation(version: int) -> None:
    buf = frame(version)
    for end in range(BODY, len(buf)):
        cut = buf[:end]
        with pytest.raises(ProtocolViolation):
            fetch.decode(cut, memoryview(cut), BODY, end, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_truncated_request_is_not_completed_with_bytes_of_the_next_request(version: int) -> None:
    buf = frame(version)
    for end in range(BODY, len(buf)):
        with pytest.raises(ProtocolViolation):
            fetch.decode(buf, memoryview(buf), BODY, end, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_response_of_any_version_is_decoded_from_the_table(version: int) -> None:
    data = PartitionData(3, 0, 50, 50, 1, (b"abc", b"defg"), 7)
    empty = PartitionData(4, 6, -1, -1, -1, (), 0)
    a, b = topic_of(version, b"a"), topic_of(version, b"b")
    slices = fetch.encode_response(9, version, 0, 77, [(a, [data, empty]), (b, [empty])])
    whole = b"".join(slices)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    entity = decode_response(1, version, whole[4:])
    if version >= fetch.TOPIC_IDS_SINCE:
        assert [topic.topic_id for topic in entity.responses] == [a, b]
    parts = entity.responses[0].partitions
    assert [part.partition_index for part in parts] == [3, 4]
    assert [int(part.error_code) for part in parts] == [0, 6]
    assert bytes(parts[0].records) == b"abcdefg"
    assert parts[0].high_watermark == 50


@for_each(product(VERSIONS, [None, (), [(7, 40)], [(7, 40), (8, 2**40)]]))
def test_response_distinguishes_null_and_empty_aborted_transactions(
    version: int, aborted: list[tuple[int, int]] | None
) -> None:
    data = PartitionData(3, 0, 50, 45, 1, (b"abc",), 3, None, aborted)
    after = PartitionData(4, 0, 60, 60, 1, (b"de",), 2)
    topics = [(topic_of(version, b"a"), [data, after])]
    whole = b"".join(fetch.encode_response(9, version, 0, 77, topics))
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    first, second = decode_response(1, version, whole[4:]).responses[0].partitions
    assert (first.high_watermark, first.last_stable_offset) == (50, 45)
    found = first.aborted_transactions
    assert (found is None) == (aborted is None)
    assert [(item.producer_id, item.first_offset) for item in found or ()] == list(aborted or ())
    assert bytes(first.records) == b"abc"
    assert (second.partition_index, bytes(second.records)) == (4, b"de")
    assert second.aborted_transactions is None


def test_response_names_the_leaders_of_refused_partitions_and_their_addresses() -> None:
    fine = PartitionData(3, 0, 50, 50, 1, (b"abc",), 3)
    moved, lost = (PartitionData(number, 6, -1, -1, -1, (), 0) for number in (4, 5))
    diverging = PartitionData(6, 0, -1, -1, -1, (), 0, (3, 40))
    topic = b"i" * 16
    leaders = CurrentLeaders()
    leaders.add(topic, 4, (2, 17), Node(2, "host", 9093, "cellar"))
    leaders.add(topic, 5, (-1, -1), None)
    rows = [(topic, [fine, moved, lost, diverging])]
    whole = b"".join(fetch.encode_response(9, 16, 0, 77, rows, leaders))
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    entity = decode_response(1, 16, whole[4:])
    parts = entity.responses[0].partitions
    found = [(part.current_leader.leader_id, part.current_leader.leader_epoch) for part in parts]
    assert found == [(-1, -1), (2, 17), (-1, -1), (-1, -1)]
    assert (parts[3].diverging_epoch.epoch, parts[3].diverging_epoch.end_offset) == (3, 40)
    (node,) = entity.node_endpoints
    assert (node.node_id, node.host, node.port, node.rack) == (2, "host", 9093, "cellar")


@pytest.mark.row("C32")
def test_follower_request_is_decoded_from_the_table() -> None:
    rows = [(3, 8, 100, 7, 2, 4096)]
    mine = fetch.encode_request(
        5, b"client", 2, (500, 1, 1 << 20), (9, 4), [(b"a", rows)], [(b"gone", [1, 2])]
    )
    entity = decode_request(1, 12, mine[BODY:])
    assert (entity.replica_id, entity.session_id, entity.session_epoch) == (2, 9, 4)
    buf = bytearray(mine)
    decoded = fetch.decode(buf, memoryview(buf), BODY, len(buf), 12)
    assert decoded.topics == [(b"a", rows)]
    assert decoded.forgotten == [(b"gone", [1, 2])]


def test_follower_decodes_records_and_errors_and_diverging_epochs() -> None:
    data = PartitionData(3, 0, 50, 50, 1, (b"abc" * 100,), 300)
    refused = PartitionData(4, 74, -1, -1, 6, (), 0)
    diverging = PartitionData(5, 0, -1, -1, -1, (), 0, (3, 40))
    buf = bytearray(
        b"".join(
            fetch.encode_response(9, 12, 0, 77, [(b"a", [data, refused]), (b"b", [diverging])])
        )
    )
    head = fetch.decode_response_head(buf, 8)
    assert (head.error, head.session_id, head.topic_count) == (0, 77, 2)
    rows = list(fetch.response_partitions(buf, head, len(buf)))
    assert [(row[0], row[1], row[2], row[3]) for row in rows] == [
        (b"a", 3, 0, 50), (b"a", 4, 74, -1), (b"b", 5, 0, -1),
    ]  # fmt: skip
    assert bytes(buf[rows[0][5] : rows[0][6]]) == b"abc" * 100
    assert rows[1][4] == 6
    assert rows[2][7] == (3, 40)
    assert rows[0][7] is None
