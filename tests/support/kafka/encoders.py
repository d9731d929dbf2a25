"""Record batches made by the encoders of other client libraries, for tests of our decoders."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Sequence
from typing import NamedTuple

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from fastcrc.crc32 import iscsi

# kafka-python still uses deprecated functions of importlib.resources.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.memory_records import MemoryRecordsBuilder

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

HEADER = struct.Struct(">qiibIhiqqqhii")
FIELDS = ("base", "length", "epoch", "magic", "crc", "attributes", "last_delta")
FIELDS += ("first_time", "max_time", "producer_id", "producer_epoch", "sequence", "count")

Headers = Sequence[tuple[str, bytes | None]]


class Sample(NamedTuple):
    """Timestamp, key, value and headers of one record."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def by_aiokafka(samples: Sequence[Sample], codec: int = 0) -> bytes:
    """Return one batch made by aiokafka. With snappy, aiokafka uses the framing of snappy-java."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    for index, (timestamp, key, value, headers) in enumerate(samples):
        assert builder.append(index, timestamp, key, value, list(headers)) is not None
    return bytes(builder.build())


def by_kafka_python(samples: Sequence[Sample], codec: int = 0) -> bytes:
    """Return one batch made by kafka-python."""
    builder = MemoryRecordsBuilder(2, codec, 1 << 30)
    for timestamp, key, value, headers in samples:
        builder.append(timestamp=timestamp, key=key, value=value, headers=list(headers))
    builder.close()
    return bytes(builder.buffer())


def altered(batch: bytes, **fields: int) -> bytes:
    """Return the batch with these header fields replaced and its CRC recomputed."""
    header = dict(zip(FIELDS, HEADER.unpack_from(batch), strict=True)) | fields
    out = bytearray(HEADER.pack(*header.values()) + batch[HEADER.size :])
    struct.pack_into(">I", out, 17, fields.get("crc", iscsi(bytes(out[21:]))))
    return bytes(out)


def raw_batch(
    records: bytes, count: int, *, codec: int = 0, first_time: int = 0, base: int = 0
) -> bytes:
    """Return a batch whose header is followed by `records`, which are already encoded and compressed."""
    layout = struct.Struct(">qiibIhiqqqhii")
    header = layout.pack(
        base,
        49 + len(records),
        0,
        2,
        0,
        codec,
        count - 1,
        first_time,
        first_time,
        -1,
        -1,
        -1,
        count,
    )
    return altered(header + records)
