"""Produce encoding and decoding, compared with the codec of messages."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ProtocolViolation
from minikafka.base.model import Node
from minikafka.kafka.wire import produce
from minikafka.kafka.wire.codec import decode_response, encode_request, request
from minikafka.kafka.wire.current_leaders import CurrentLeaders

VERSIONS = range(3, 10)


def frame(
    version: int, topics: list[tuple[str, list[tuple[int, bytes | None]]]], acks: int = -1
) -> bytearray:
    body = request(
        0,
        version,
        transactional_id=None,
        acks=acks,
        timeout_ms=1500,
        topic_data=[
            {
                "name": name,
                "partition_data": [
                    {"index": index, "records": records} for index, records in parts
                ],
            }
            for name, parts in topics
        ],
    )
    return bytearray(encode_request(0, version, 7, "client", body))


BODY = 14 + len("client")


def decoded(buf: bytearray, version: int) -> produce.ProduceRequest:
    *_, request = produce.decode_in_steps(buf, BODY, len(buf), version)
    assert request is not None
    return request


@pytest.mark.parametrize("version", VERSIONS)
def test_produce_request_is_decoded_to_the_positions_of_its_records(version: int) -> None:
    buf = frame(version, [("t", [(3, b"abc"), (4, b"")]), ("longer-name", [(0, b"x" * 200)])])
    request = decoded(buf, version)
    assert (request.acks, request.timeout_ms, request.transactional_id) == (-1, 1500, None)
    assert request.head_end == 0
    found = {
        (topic, part.partition): bytes(buf[part.start : part.end])
        for topic, parts in request.topics
        for part in parts
    }
    assert found == {(b"t", 3): b"abc", (b"t", 4): b"", (b"longer-name", 0): b"x" * 200}


@pytest.mark.parametrize("version", VERSIONS)
def test_partition_with_null_records_is_decoded_without_positions(version: int) -> None:
    buf = frame(version, [("t", [(3, None), (4, b"abc")])])
    null, other = decoded(buf, version).topics[0][1]
    assert (null.start, null.end) == (produce.NULL_RECORDS, produce.NULL_RECORDS)
    assert bytes(buf[other.start : other.end]) == b"abc"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [1, 126, 127, 128, 20_000])
def test_records_are_located_without_decoding_the_request_fields_before_them(
    version: int, size: int
) -> None:
    buf = frame(version, [("topic", [(5, b"r" * size)])])
    request = decoded(buf, version)
    part = request.topics[0][1][0]
    assert produce.single_records(buf, request.head_end, len(buf), version) == part.start
    assert part.end + produce.tail_bytes(version) == len(buf)


@pytest.mark.parametrize("tail", [b"\1\0\0", b"\0\1\0", b"\0\0\1"])
def test_request_with_tagged_fields_is_not_decoded_by_the_fast_path(tail: bytes) -> None:
    buf = frame(9, [("topic", [(5, b"records")])])
    head_end = decoded(buf, 9).head_end
    assert produce.single_records(buf, head_end, len(buf), 9) > 0
    buf[-3:] = tail
    assert produce.single_records(buf, head_end, len(buf), 9) == -1


@pytest.mark.parametrize("version", VERSIONS)
def test_truncated_request_raises_a_protocol_violation(version: int) -> None:
    buf = frame(version, [("topic", [(5, b"records")])])
    for end in range(BODY, len(buf)):
        cut = buf[:end]
        with pytest.raises(ProtocolViolation):
            decoded(cut, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_response_for_one_partition_has_the_bytes_of_the_general_encoder(version: int) -> None:
    start = 11 if version >= 5 else -1
    answer = produce.PartitionAnswer(5, 0, 42, -1, start)
    general = produce.encode_response(9, version, [(b"topic", [answer])])

    def refuse(correlation: int, error: int) -> bytes:
        return b"%d %d" % (correlation, error)

    single = produce.single_answer(b"topic", 5, version, refuse)
    assert single(9, 0, 42, 11) == general
    assert single(9, 6, 42, 11) == b"9 6"
    entity = decode_response(0, version, general[4:])
    part = entity.responses[0].partition_responses[0]
    assert (entity.responses[0].name, part.index, int(part.error_code), part.base_offset) == (
        "topic",
        5,
        0,
        42,
    )


@pytest.mark.parametrize("version", range(8, 12))
def test_response_has_the_bad_records_and_the_leader_of_each_partition(version: int) -> None:
    refused = produce.PartitionAnswer(5, 87, texts=("all", [(10, "first"), (90, "second")]))
    moved = produce.PartitionAnswer(6, 6)
    leaders = CurrentLeaders()
    leaders.add(b"topic", 6, (2, 17), Node(2, "host", 9093, None))
    rows = [(b"topic", [refused, moved])]
    whole = produce.encode_response(9, version, rows, leaders if version >= 10 else None)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    entity = decode_response(0, version, whole[4:])
    first, second = entity.responses[0].partition_responses
    found = [(one.batch_index, one.batch_index_error_message) for one in first.record_errors]
    assert (first.error_message, found) == ("all", [(10, "first"), (90, "second")])
    assert (second.error_message, list(second.record_errors)) == (None, [])
    if version >= 10:
        assert (first.current_leader.leader_id, second.current_leader.leader_id) == (-1, 2)
        (node,) = entity.node_endpoints
        assert (node.node_id, node.host, node.port, node.rack) == (2, "host", 9093, None)
