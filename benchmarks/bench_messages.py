"""Cost of decoding and encoding requests and responses of 1,000 partitions or topics, at once and in steps.

The operations count single elements: a request of 1,000 partitions has 1,000. `python -m benchmarks.pairs TREE
bench_messages` runs this file in another tree too, which may be one with the modules of before.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from benchmarks.micro import Outcome, main, timed
from minikafka.kafka.wire import codec
from minikafka.kafka.wire.versions import METADATA, OFFSET_COMMIT, OFFSET_FETCH

IN_STEPS: Any = import_module(
    "minikafka.kafka.wire.in_steps"
    if find_spec("minikafka.kafka.wire.in_steps")
    else "minikafka.kafka.wire.codec"
)
ELEMENTS = 1_000
TAGS = b"\0"
"""The tagged fields of a request header. In a response, they follow the correlation id."""


def body_of(message: Any) -> bytes:
    """Return the encoded body. `message` is the body, or an entity of the codec of before."""
    if isinstance(message, bytes):
        return message
    encoded: bytes = codec.encode_body(message)  # type: ignore[attr-defined]
    return encoded


def _commit() -> bytes:
    partitions = [
        {
            "partition_index": number,
            "committed_offset": 1_000 * number,
            "committed_leader_epoch": 3,
            "committed_metadata": "",
        }
        for number in range(ELEMENTS)
    ]
    topics = [{"name": "a-topic", "partitions": partitions}]
    return TAGS + body_of(
        codec.request(OFFSET_COMMIT, 8, group_id="a-group", member_id="a-member", topics=topics)
    )


def _metadata_request() -> bytes:
    topics = [{"name": f"a-topic-{number}"} for number in range(ELEMENTS)]
    return TAGS + body_of(codec.request(METADATA, 12, topics=topics))


def _metadata_values() -> dict[str, Any]:
    partitions = [
        {
            "partition_index": number,
            "leader_id": 1,
            "leader_epoch": 5,
            "replica_nodes": (1, 2, 3),
            "isr_nodes": (1, 2, 3),
        }
        for number in range(ELEMENTS)
    ]
    topics = [{"name": "a-topic", "topic_id": b"0123456789abcdef", "partitions": partitions}]
    return {"brokers": [{"node_id": 1, "host": "a-host", "port": 9092}], "topics": topics}


def _fetched_values() -> dict[str, Any]:
    partitions = [
        {"partition_index": number, "committed_offset": number, "metadata": "", "error_code": 0}
        for number in range(ELEMENTS)
    ]
    topics = [{"name": "a-topic", "partitions": partitions}]
    return {"groups": [{"group_id": "a-group", "topics": topics}]}


def _repeat(operations: int, work: Callable[[], Any]) -> Outcome:
    """Run `work`, which handles `ELEMENTS` elements, until `operations` elements were handled."""

    def repeated() -> int:
        for _ in range(-(-operations // ELEMENTS)):
            work()
        return operations

    return timed(operations, repeated)


def _steps(steps: Generator[Any, None, Any]) -> Any:
    try:
        while True:
            next(steps)
    except StopIteration as done:
        return done.value


def decode_offset_commit(operations: int) -> Outcome:
    """Decode and check an OffsetCommit request."""
    body = _commit()
    return _repeat(operations, lambda: codec.decode_request(OFFSET_COMMIT, 8, body))


def decode_offset_commit_in_steps(operations: int) -> Outcome:
    """Decode and check an OffsetCommit request in steps."""
    body = memoryview(bytearray(_commit()))
    decode = IN_STEPS.decode_request_in_steps
    return _repeat(operations, lambda: _steps(decode(OFFSET_COMMIT, 8, body)))


def decode_metadata_request(operations: int) -> Outcome:
    """Decode and check a Metadata request."""
    body = _metadata_request()
    return _repeat(operations, lambda: codec.decode_request(METADATA, 12, body))


def decode_metadata_request_in_steps(operations: int) -> Outcome:
    """Decode and check a Metadata request in steps."""
    body = memoryview(bytearray(_metadata_request()))
    decode = IN_STEPS.decode_request_in_steps
    return _repeat(operations, lambda: _steps(decode(METADATA, 12, body)))


def decode_metadata_response(operations: int) -> Outcome:
    """Decode and check a Metadata response, as clients do."""
    body = bytes(4) + TAGS + body_of(codec.response(METADATA, 12, **_metadata_values()))
    return _repeat(operations, lambda: codec.decode_response(METADATA, 12, body))


def encode_metadata_response_in_steps(operations: int) -> Outcome:
    """Encode a Metadata response in steps, from plain values. (Brokers encode it by hand, and cache topics.)"""
    values, encode = _metadata_values(), IN_STEPS.response_in_steps
    return _repeat(operations, lambda: _steps(encode(METADATA, 12, **values)))


def encode_offset_fetch_response_in_steps(operations: int) -> Outcome:
    """Encode an OffsetFetch response in steps."""
    values, encode = _fetched_values(), IN_STEPS.response_in_steps
    return _repeat(operations, lambda: _steps(encode(OFFSET_FETCH, 8, **values)))


BENCHES = (
    decode_offset_commit,
    decode_offset_commit_in_steps,
    decode_metadata_request,
    decode_metadata_request_in_steps,
    decode_metadata_response,
    encode_metadata_response_in_steps,
    encode_offset_fetch_response_in_steps,
)

if __name__ == "__main__":
    main(*BENCHES)
