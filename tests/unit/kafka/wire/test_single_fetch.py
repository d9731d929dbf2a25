"""The Fetch codec for one partition returns the same as the general codec, or None for any other message."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.base.fetch_rows import PartitionData
from minikafka.kafka.wire import fetch
from minikafka.kafka.wire.single_fetch import (
    SingleFetch,
    encode_single_response,
    single_request,
    single_response,
)

CLIENT = b"broker-2-fetcher-0"
BODY = 14 + len(CLIENT)
LIMITS = (500, 1, 8 << 20)
ROW = (3, 8, 100, 7, 2, 4096)
LONGEST_SHORT = b"t" * 126
TOPICS = (b"t", b"a-topic", LONGEST_SHORT, b"t" * 127, b"t" * 249)


def general_request(topic: bytes, rows: Any = (ROW,), forgotten: Any = ()) -> bytearray:
    return bytearray(fetch.encode_request(5, CLIENT, 2, LIMITS, (9, 4), [(topic, rows)], forgotten))


def general_response(
    topic: bytes = b"t", *, error: int = 0, rows: Any = None, size: int = 300
) -> bytearray:
    row = PartitionData(3, 0, 50, 50, 1, (b"x" * size,), size)
    return bytearray(
        b"".join(fetch.encode_response(9, 12, error, 77, [(topic, rows or [row])])),
    )


@pytest.mark.parametrize("topic", TOPICS)
def test_a_request_for_one_partition_has_the_bytes_of_the_general_encoder(topic: bytes) -> None:
    encoder = SingleFetch(CLIENT, 2, LIMITS)
    for _ in range(2):
        assert encoder.encode(5, (9, 4), topic, ROW) == general_request(topic)


@pytest.mark.parametrize("topic", [b"t", b"a-topic", LONGEST_SHORT])
def test_request_for_one_partition_is_decoded_as_by_the_general_decoder(topic: bytes) -> None:
    buf = bytearray(b"before") + general_request(topic) + b"\x07behind"
    body, end = 6 + BODY, len(buf) - 7
    single = single_request(buf, body, end)
    assert single is not None
    decoded = fetch.decode(buf, memoryview(buf), body, end, 12)
    head, topic_read, row_read = single
    assert head == (
        decoded.replica_id,
        decoded.max_wait_ms,
        decoded.max_bytes,
        decoded.session_id,
        decoded.session_epoch,
    )
    [(name, [row])] = decoded.topics
    assert (topic_read, *row_read) == (name, *row)


@pytest.mark.parametrize(
    "request_bytes",
    [
        general_request(b"t" * 127),
        general_request(b"t", (ROW, (4, *ROW[1:]))),
        general_request(b"t", ()),
        general_request(b"t", forgotten=[(b"gone", [1])]),
        bytearray(fetch.encode_request(5, CLIENT, 2, LIMITS, (9, 4), ())),
        bytearray(
            fetch.encode_request(5, CLIENT, 2, LIMITS, (9, 4), [(b"t", [ROW]), (b"u", [ROW])])
        ),
    ],
)
def test_request_outside_the_one_partition_form_is_left_to_the_general_decoder(
    request_bytes: bytearray,
) -> None:
    assert single_request(request_bytes, BODY, len(request_bytes)) is None


def test_truncated_request_or_wrong_fixed_byte_is_left_to_the_general_decoder() -> None:
    whole = general_request(b"topic")
    for end in range(BODY, len(whole)):
        assert single_request(whole, BODY, end) is None
    tags, count, partitions, tail = BODY, BODY + 26, BODY + 33, len(whole) - 5
    for at in (tags, count, partitions, *range(tail, len(whole))):
        other = bytearray(whole)
        other[at] ^= 1
        assert single_request(other, BODY, len(other)) is None, at


@pytest.mark.parametrize("size", [0, 1, 126, 127, 300, 5000, 20_000])
@pytest.mark.parametrize("topic", [b"t", LONGEST_SHORT])
def test_a_response_with_one_partition_has_the_bytes_of_the_general_encoder(
    topic: bytes, size: int
) -> None:
    row = PartitionData(3, 0, 50, 49, 1, (b"x" * size,), size)
    answer = encode_single_response(9, 77, topic, row)
    assert answer is not None
    assert b"".join(answer) == b"".join(fetch.encode_response(9, 12, 0, 77, [(topic, [row])]))


@pytest.mark.parametrize("size", [1, 126, 127, 300, 5000, 20_000])
@pytest.mark.parametrize("topic", [b"t", LONGEST_SHORT])
def test_response_with_one_partition_is_decoded_as_by_the_general_decoder(
    topic: bytes, size: int
) -> None:
    buf = bytearray(b"before") + general_response(topic, size=size) + b"\0behind"
    single = single_response(buf, 6, len(buf) - 7)
    assert single is not None
    head = fetch.decode_response_head(buf, 14)
    (row,) = fetch.response_partitions(buf, head, len(buf) - 7)
    assert single == (head.session_id, row[0], row[1], row[3], row[4], row[5], row[6])
    assert buf[single[5] : single[6]] == b"x" * size


REFUSED = PartitionData(3, 6, -1, -1, -1, (), 0)
DIVERGING = PartitionData(3, 0, -1, -1, -1, (), 0, (3, 40))
PLAIN = PartitionData(3, 0, 50, 50, 1, (b"abc",), 3)


@pytest.mark.parametrize("row", [REFUSED, DIVERGING])
def test_partition_with_an_error_or_divergence_is_left_to_the_general_codec(row: Any) -> None:
    assert encode_single_response(9, 77, b"t", row) is None
    buf = general_response(rows=[row])
    assert single_response(buf, 0, len(buf)) is None


def test_response_with_several_partitions_is_left_to_the_general_decoder() -> None:
    buf = general_response(rows=[PLAIN, PLAIN])
    assert single_response(buf, 0, len(buf)) is None


def test_response_outside_the_one_partition_form_is_left_to_the_general_codec() -> None:
    whole = general_response()
    for stop in range(len(whole)):
        assert single_response(whole, 0, stop) is None
    for at in (8, 14, 19, 22, *range(len(whole) - 3, len(whole))):
        other = bytearray(whole)
        other[at] ^= 1
        assert single_response(other, 0, len(other)) is None, at
    session_unknown = general_response(error=70)
    assert single_response(session_unknown, 0, len(session_unknown)) is None
    assert encode_single_response(9, 77, b"t" * 127, PLAIN) is None


@pytest.mark.parametrize("aborted", [(), [(7, 40)]])
def test_partition_with_aborted_transactions_is_left_to_the_general_encoder(aborted: Any) -> None:
    row = PLAIN._replace(aborted=aborted)
    assert encode_single_response(9, 77, b"t", row) is None
