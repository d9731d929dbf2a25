"""The header of a record batch v2 (KIP-98): its layout, and the index of each field in the unpacked tuple.

This module, `varints.py` and `transactions.py` need no library, so that Spark executors can import them.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

Header = tuple[int, ...]
"""The fields of a header, as `HEADER` unpacks them."""
HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = 61
OVERHEAD: Final = 12
"""Size of the base offset and the batch length, which are the bytes that the batch length does not count."""
CRC_AT: Final = 17
CRC_START: Final = 21
"""Position of the attributes. The CRC covers the bytes from this position to the end of the batch."""

BASE_OFFSET: Final = 0
BATCH_LENGTH: Final = 1
LEADER_EPOCH: Final = 2
MAGIC: Final = 3
CRC: Final = 4
ATTRIBUTES: Final = 5
LAST_OFFSET_DELTA: Final = 6
BASE_TIMESTAMP: Final = 7
MAX_TIMESTAMP: Final = 8
PRODUCER_ID: Final = 9
PRODUCER_EPOCH: Final = 10
BASE_SEQUENCE: Final = 11
COUNT: Final = 12

CODEC_MASK: Final = 0x07
CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""The values of a producer's `compression.type`, with the codec numbers in the attributes of a batch."""
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
"""Attribute bit: the base timestamp is the time from which the log cleaner may remove delete markers."""

NO_PRODUCER_ID: Final = -1
NO_TIMESTAMP: Final = -1
