"""The end-to-end latency benchmark: the records found in a response, and the offset after the last whole batch."""

from __future__ import annotations

import pytest

from benchmarks.closed_loop import LoadError
from benchmarks.load_end_to_end import EndToEnd, next_offset, records_of
from minikafka.kafka.records import batch
from minikafka.kafka.wire import codec
from minikafka.kafka.wire.versions import FETCH


def batches(*counts: int) -> bytes:
    data, offset = b"", 0
    for count in counts:
        data += batch.build([batch.Record(0, 0, None, b"v", ())] * count, base_offset=offset)
        offset += count
    return data


def response(records: bytes | None, error: int = 0) -> bytes:
    partition = {
        "partition_index": 0,
        "error_code": error,
        "high_watermark": 9,
        "records": records,
        "aborted_transactions": None,
    }
    body = codec.response(
        FETCH,
        11,
        error_code=0,
        session_id=0,
        responses=[{"topic": "tt", "partitions": [partition]}],
    )
    return codec.encode_response(1, FETCH, 11, body)[4:]


def test_records_are_extracted_from_a_fetch_response():
    data = batches(3)

    assert bytes(records_of(response(data), "tt")) == data
    assert bytes(records_of(response(b""), "tt")) == b""


def test_partition_error_in_a_fetch_response_raises_load_error():
    with pytest.raises(LoadError, match="error 6"):
        records_of(response(b"", error=6), "tt")


def test_next_offset_is_after_the_last_whole_batch():
    data = batches(3, 1, 5)

    assert next_offset(memoryview(data), 0) == 9
    assert next_offset(memoryview(data[:-1]), 0) == 4
    assert next_offset(memoryview(b""), 7) == 7


def test_percentile_is_a_measured_latency():
    result = EndToEnd(1000, [1.0, 2.0, 3.0, 4.0], 0)

    assert [result.percentile_ms(share) for share in (0, 0.5, 0.99, 1)] == [1.0, 3.0, 4.0, 4.0]
