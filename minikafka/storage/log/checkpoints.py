"""The encoding of the small text files in a log directory, byte for byte as in Kafka 3.9.

The files are the offset checkpoints (`replication-offset-checkpoint`, `recovery-point-offset-checkpoint`,
`log-start-offset-checkpoint`, `cleaner-offset-checkpoint`), `meta.properties` and `partition.metadata`.
Invariant: decoding an encoded file returns the original values. Malformed content raises ValueError.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from minikafka.base.config.keys import LONG_MAX
from minikafka.base.model import TopicPartition, topic_id_text
from minikafka.base.names import parse_number, parse_topic, parse_topic_id

HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
FIRST_DIRTY_OFFSETS: Final = "cleaner-offset-checkpoint"
CHECKPOINTS: Final = (HIGH_WATERMARKS, RECOVERY_POINTS, LOG_START_OFFSETS)
"""The checkpoints that are written periodically."""
META_PROPERTIES: Final = "meta.properties"
PARTITION_METADATA: Final = "partition.metadata"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"

CLEAN_SHUTDOWN_CONTENT: Final = b'{"version":0,"brokerEpoch":-1}'


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return the content of an offset checkpoint: version 0, the count, one `topic partition offset` per line."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    return ("\n".join(["0", str(len(lines)), *lines]) + "\n").encode()


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Return the offsets in an offset checkpoint by partition. Raises ValueError if the content is invalid."""
    lines = data.decode("ascii").split("\n")
    if lines[0] != "0" or lines[-1] != "" or parse_number(lines[1]) != len(lines) - 3:
        raise ValueError("it is not an offset checkpoint of version 0")
    offsets = {}
    for line in lines[2:-1]:
        topic, partition, offset = line.split(" ")
        tp = TopicPartition(parse_topic(topic), parse_number(partition))
        offsets[tp] = parse_number(offset, LONG_MAX)
    if len(offsets) < len(lines) - 3:
        raise ValueError("it names a partition twice")
    return offsets


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Return the content of a Java properties file. The values must not need escapes."""
    return ("#\n" + "".join(f"{name}={value}\n" for name, value in properties.items())).encode()


def decode_properties(data: bytes) -> dict[str, str]:
    """Parse a Java properties file; return name -> value. Comments are skipped. Raises ValueError."""
    properties = {}
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise ValueError("it is not text") from None
    for line in lines:
        if line.strip() and not line.startswith(("#", "!")):
            name, separator, value = line.partition("=")
            if not separator:
                raise ValueError(f"the line {line!r} has no value")
            properties[name.strip()] = value.strip()
    return properties


def check_version(properties: Mapping[str, str]) -> None:
    """Raise ValueError unless `meta.properties` has version 0, the version of a broker with ZooKeeper."""
    version = properties.get("version")
    if version is None:
        raise ValueError("it has no version")
    if version != "0":
        raise ValueError(f"its version must be 0, got {version!r}")


def encode_topic_id(topic_id: bytes) -> bytes:
    """Return the content of a replica's `partition.metadata`."""
    return f"version: 0\ntopic_id: {topic_id_text(topic_id)}".encode()


def decode_topic_id(data: bytes) -> bytes:
    """Return the 16-byte topic id in the content of a `partition.metadata`. Raises ValueError."""
    lines = data.decode().split("\n")
    if lines[0] != "version: 0" or len(lines) < 2 or not lines[1].startswith("topic_id: "):
        raise ValueError("it is not a partition.metadata of version 0")
    return parse_topic_id(lines[1].removeprefix("topic_id: ").strip())
