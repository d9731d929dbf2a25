"""Log directories of brokers that never ran. Tests write the replicas batch by batch, with or without faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from minikafka.base.model import TopicPartition
from minikafka.kafka.records.header import CODECS
from minikafka.spark.records import checksum
from minikafka.spark.records.encode import Producer, Rows, encode
from minikafka.storage.log import checkpoints

NOBODY = Producer(-1, -1)
BROKERS = (1, 2, 3)
TIME = 1_790_000_000_000


def batch(
    values: Sequence[bytes | None] | pa.Array,
    base_offset: int,
    *,
    keys: Sequence[bytes | None] | None = None,
    epoch: int = 0,
    producer: Producer = NOBODY,
    sequence: int = -1,
    codec: str = "none",
) -> bytes:
    """Return one encoded batch with offset and leader epoch, as in a log file."""
    column = values if isinstance(values, pa.Array) else pa.array(values, pa.binary())
    numbers = np.arange(len(column), dtype=np.int64)
    times = np.full(len(column), TIME, dtype=np.int64)
    rows = Rows(pa.array(keys or [None] * len(column), pa.binary()), column, times, None, numbers)
    check = checksum.find()
    assert check is not None
    encoded = encode(rows, CODECS[codec], producer, sequence, check)
    encoded[0:8] = base_offset.to_bytes(8, "big")
    encoded[12:16] = epoch.to_bytes(4, "big")
    return bytes(encoded)


def marked(encoded: bytes, attributes: int) -> bytes:
    """Return the batch with these attribute bits set and the checksum recomputed."""
    changed = bytearray(encoded)
    changed[22] |= attributes
    check = checksum.find()
    assert check is not None
    changed[17:21] = check(memoryview(changed)[21:]).to_bytes(4, "big")
    return bytes(changed)


def with_invalid_record(encoded: bytes) -> bytes:
    """Return the batch with one subtracted from the length field of its first record. The checksum is valid."""
    changed = bytearray(encoded)
    changed[61] -= 2
    return marked(bytes(changed), 0)


def marker(base_offset: int, producer: Producer, *, commit: bool) -> bytes:
    """Return the control batch that commits or aborts a transaction."""
    key = b"\0\0\0\1" if commit else b"\0\0\0\0"
    return marked(batch([bytes(6)], base_offset, keys=[key], producer=producer), 0x30)


class ReplicaLogs:
    """The log directories of several brokers: `broker-N` below one directory."""

    def __init__(self, path: Path, brokers: Sequence[int] = BROKERS) -> None:
        self.path = path
        self.brokers = brokers
        for broker in brokers:
            directory = self.directory(broker)
            directory.mkdir(parents=True)
            properties = {"version": "0", "broker.id": str(broker), "cluster.id": "c"}
            (directory / checkpoints.META_PROPERTIES).write_bytes(
                checkpoints.encode_properties(properties)
            )
            (directory / checkpoints.CLEAN_SHUTDOWN).write_bytes(b"")

    def directory(self, broker: int) -> Path:
        return self.path / f"broker-{broker}"

    def segment(self, broker: int, tp: TopicPartition, base: int = 0) -> Path:
        folder = self.directory(broker) / str(tp)
        folder.mkdir(exist_ok=True)
        return folder / f"{base:020d}.log"

    def append(
        self, tp: TopicPartition, encoded: bytes, *, on: Sequence[int] | None = None, base: int = 0
    ) -> None:
        """Append a batch to the segment with base offset `base`, on the brokers `on` or, by default, on all brokers."""
        for broker in self.brokers if on is None else on:
            with self.segment(broker, tp, base).open("ab") as file:
                file.write(encoded)

    def checkpoint(self, broker: int, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        (self.directory(broker) / name).write_bytes(checkpoints.encode_offsets(offsets))
