"""The text files of a log directory, compared with files that Kafka 3.9 wrote."""

from __future__ import annotations

import pytest

from minikafka.base.model import TopicPartition
from minikafka.storage.log.checkpoints import (
    decode_offsets,
    decode_properties,
    decode_topic_id,
    encode_offsets,
    encode_properties,
    encode_topic_id,
)

STRANGE = ["²", "٣", "01", "+1", "-1", "1_0", "1.0", ""]
OFFSETS = {TopicPartition("a.b_c-d", 0): 17, TopicPartition("t", 12): 0}


def test_offset_checkpoint_has_version_and_count_and_a_line_per_partition() -> None:
    data = encode_offsets(OFFSETS)
    assert data == b"0\n2\na.b_c-d 0 17\nt 12 0\n"
    assert decode_offsets(data) == OFFSETS
    assert decode_offsets(encode_offsets({})) == {}


@pytest.mark.parametrize(
    "data", [b"", b"0\n", b"1\n0\n", b"0\n2\nt 0 1\n", b"0\n1\nt 0 1", b"0\n1\nt 0\n", b"0\n1\nt x 1\n", b"\x00" * 20]
    + [f"0\n1\nt {number} 1\n".encode() for number in STRANGE]
    + [f"0\n1\nt 0 {number}\n".encode() for number in STRANGE]
    + [b"0\n1\n.. 0 1\n", "0\n1\nü 0 1\n".encode(), b"0\n2\nt 0 1\nt 0 2\n", b"0\n1_0\n"]
    + [b"0\n1\nt 0 9223372036854775808\n"]
)  # fmt: skip
def test_decoding_refuses_a_file_that_is_no_offset_checkpoint(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        decode_offsets(data)


def test_meta_properties_of_kafka_are_read_with_their_comments() -> None:
    written = b"#\n#Mon Mar 04 10:11:12 UTC 2024\nversion=0\nbroker.id=1\ncluster.id=abc_-DEF\n"
    properties = {"version": "0", "broker.id": "1", "cluster.id": "abc_-DEF"}
    assert decode_properties(written) == properties
    assert decode_properties(encode_properties(properties)) == properties


def test_binary_properties_file_is_refused_with_a_clear_error() -> None:
    with pytest.raises(ValueError, match="it is not text"):
        decode_properties(b"\xff\xfe\0")


def test_properties_without_a_value_are_refused() -> None:
    with pytest.raises(ValueError, match="no value"):
        decode_properties(b"version\n")


def test_a_topic_id_is_written_as_kafka_prints_it() -> None:
    topic_id = bytes(range(16))
    assert encode_topic_id(topic_id) == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert decode_topic_id(encode_topic_id(topic_id)) == topic_id
    assert decode_topic_id(encode_topic_id(topic_id) + b"\n") == topic_id


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw",
        b"version: 0\ntopic_id: AA",
        b"version: 0\ntopic_id: AAEC!AwQFBgcICQoLDA0ODw",
        b"\xff",
    ],
)
def test_malformed_partition_metadata_file_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        decode_topic_id(data)
