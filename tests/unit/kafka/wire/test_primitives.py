"""Kafka's primitive types as bytes."""

from __future__ import annotations

from minikafka.kafka.wire import primitives


def test_strings_and_arrays_are_encoded_as_in_kafka() -> None:
    assert primitives.string(None) == b"\xff\xff"
    assert primitives.string("ä") == b"\x00\x02\xc3\xa4"
    assert primitives.compact_string(None) == b"\x00"
    assert primitives.compact_string("") == b"\x01"
    assert primitives.compact_string("a" * 200) == b"\xc9\x01" + b"a" * 200
    assert primitives.int32_array([1, -1]) == b"\0\0\0\x02\0\0\0\x01\xff\xff\xff\xff"
    assert primitives.compact_int32_array([7]) == b"\x02\0\0\0\x07"
    assert primitives.array(0) == b"\0\0\0\0"
    assert primitives.compact_array(0) == b"\x01"
