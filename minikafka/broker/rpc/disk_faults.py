"""The control-plane call with which a tool replaces the faults of a broker's disk.

Request: all faults that are to be active from now on. Response: an empty map. Only a broker that was started with
faults (`runtime/disk_faults.py`) serves the call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from minikafka.base.disk_faults import KINDS, DiskFault
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.broker.rpc.fields import (
    INT64_MAX,
    Body,
    as_integer,
    as_map,
    as_row,
    as_rows,
    as_text,
    invalid,
)

DISK_FAULTS: Final = "disk_faults"
_ID: Final = re.compile(r"[a-zA-Z0-9-]{1,64}")
_PATH: Final = re.compile(r"(?s)/.{0,4095}")


def encode_disk_faults(faults: Iterable[DiskFault]) -> Body:
    """Return the body of the call."""
    return {"faults": [list(fault) for fault in faults]}


def serve(body: object, replace: Callable[[Sequence[DiskFault]], None] | None) -> Body:
    """Handle the call: let `replace` make these faults the active ones. Raises KafkaError(INVALID_REQUEST)."""
    if replace is None:
        text = "this broker was not started with faults"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    replace(as_rows(as_map(body, {"faults": None})["faults"], _fault))
    return {}


def _fault(row: object) -> DiskFault:
    id_, kind, directory, value = as_row(row, 4)
    if kind not in KINDS:
        raise invalid(f"unknown fault of a disk {kind!r}; known faults: {', '.join(KINDS)}")
    return DiskFault(
        as_text(id_, _ID), kind, as_text(directory, _PATH), as_integer(value, 0, INT64_MAX)
    )
