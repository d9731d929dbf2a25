"""CRC-32C of record batches, computed by an optional library: `fastcrc` (fastest) or `crc32c`.

Executors need only numpy and pyarrow, which have no CRC-32C. If neither `fastcrc` nor `crc32c` is installed,
checksums are not compared and one warning is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import TypeAlias

logger = logging.getLogger(__name__)

Checksum: TypeAlias = Callable[[memoryview], int]


def _fastcrc() -> Checksum:
    from fastcrc.crc32 import iscsi

    return iscsi


def _crc32c() -> Checksum:
    from crc32c import crc32c

    return crc32c


@cache
def find() -> Checksum | None:
    """Return a function that computes the CRC-32C of a buffer, or None if no CRC-32C library is installed."""
    for load in (_fastcrc, _crc32c):
        try:
            return load()
        except ImportError:
            continue
    logger.warning(
        "record checksums are not compared: install fastcrc (or crc32c) in the environment of the executors"
    )
    return None
