"""Pre-encoded requests follow Kafka's schema, and responses are checked to the byte."""

from __future__ import annotations

import pytest

from benchmarks.kafka import Leader, batch_of, produce_answer, produce_loads, produce_request
from minikafka.kafka.records.batch import check_produced
from minikafka.kafka.records.header import HEADER
from minikafka.kafka.wire import codec
from minikafka.kafka.wire.versions import PRODUCE


@pytest.mark.parametrize("size", [259, 1094, 16_384, 131_072, 900_000])
def test_benchmark_batch_has_the_requested_size_and_is_valid_for_a_leader(size):
    data = batch_of(size)

    assert len(data) == size
    assert check_produced(memoryview(data), HEADER.unpack_from(data, 0), False) == 0


@pytest.mark.parametrize("version", [7, 9])
def test_pre_encoded_produce_request_is_decoded_by_the_codec(version):
    frame = produce_request(version, "tt", 5, b"records", 77)

    request = codec.decode_request(PRODUCE, version, memoryview(frame)[14 + len("load") :])

    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert request.acks == -1
    assert request.topic_data[0].name == "tt"
    assert request.topic_data[0].partition_data[0].index == 5


@pytest.mark.parametrize("version", [7, 9])
def test_expected_produce_response_matches_only_a_response_without_error(version):
    def encoded(error: int) -> bytes:
        partition = {"index": 0, "error_code": error, "base_offset": 123, "log_append_time_ms": -1}
        body = codec.response(
            PRODUCE, version, responses=[{"name": "tt", "partition_responses": [partition]}]
        )
        return codec.encode_response(1, PRODUCE, version, body)

    answer = produce_answer(version, "tt")

    assert len(encoded(0)) == answer.size
    assert answer.fields.unpack(encoded(0)) == answer.expected
    assert answer.fields.unpack(encoded(6)) != answer.expected


def test_each_leading_broker_gets_one_connection_and_an_equal_share_of_the_load():
    leaders = [Leader(0, "h", 1), Leader(1, "h", 2), Leader(2, "h", 1)]

    loads = produce_loads(leaders, "tt", 259, version=7, in_flight=4, total=100)

    assert [(load.port, load.total, len(load.requests)) for load in loads] == [
        (1, 50, 2),
        (2, 50, 1),
    ]
