"""The files of Protobuf that every schema may import without a reference, and the types of time in them."""

from __future__ import annotations

import importlib
import re
from datetime import UTC, datetime, timedelta
from typing import Final

from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)

from minikafka.base.errors import ConfigError
from minikafka.spark.registry.options import SCHEMA

_MODULES: Final = (
    any_pb2, api_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, source_context_pb2, struct_pb2,
    timestamp_pb2, type_pb2, wrappers_pb2,
)  # fmt: skip
_FILES: Final = {one.DESCRIPTOR.name: one.DESCRIPTOR.serialized_pb for one in _MODULES}
_COMMON: Final = re.compile(r"google/(type|rpc)/[a-z_]+\.proto")
"""Files that registries have too, and that are in the package googleapis-common-protos."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def file_bytes(name: str) -> bytes:
    """Return the serialized descriptor of a file such as google/protobuf/timestamp.proto. Raises ConfigError."""
    if name in _FILES:
        return bytes(_FILES[name])
    if not _COMMON.fullmatch(name):
        raise ConfigError(
            f"{SCHEMA}: the Protobuf schema imports {name}, which is not among its references in the registry;"
            " register it with the reference"
        )
    try:
        module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    except ModuleNotFoundError:
        raise ConfigError(
            f"{SCHEMA}: the Protobuf schema imports {name}; pip install googleapis-common-protos"
        ) from None
    return bytes(module.DESCRIPTOR.serialized_pb)


def timestamp_fields(value: datetime) -> dict[str, int]:
    """Return the fields of a Timestamp. A time without a zone is in UTC."""
    zoned = value if value.tzinfo else value.replace(tzinfo=UTC)
    seconds, rest = divmod((zoned - _EPOCH) // _MICROSECOND, 1_000_000)
    return {"seconds": seconds, "nanos": rest * 1_000}


def duration_fields(value: timedelta) -> dict[str, int]:
    """Return the fields of a Duration, which have the same sign."""
    whole = value // _MICROSECOND
    seconds, rest = divmod(abs(whole), 1_000_000)
    sign = -1 if whole < 0 else 1
    return {"seconds": sign * seconds, "nanos": sign * rest * 1_000}
