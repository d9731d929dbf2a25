"""The CRC-32C of a record batch, from whichever library is installed.

`fastcrc` is the fastest, `crc32c` comes next. numpy and pyarrow, the only packages an executor must
have, hold no CRC-32C; without either library the checksums are not compared and one warning says so.
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
    """The function that computes CRC-32C over a buffer, or None when no library for it is installed."""
    for load in (_fastcrc, _crc32c):
        try:
            return load()
        except ImportError:
            continue
    logger.warning("record checksums are not compared: install fastcrc (or crc32c) beside pyspark")
    return None
