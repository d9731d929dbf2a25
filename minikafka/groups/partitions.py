"""The partition of `__consumer_offsets` of each group, and the loading of a partition's groups."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from minikafka.groups.group import Group
from minikafka.groups.offsets import GroupOffsets
from minikafka.groups.records import (
    NO_TIMESTAMP,
    GroupKey,
    GroupMetadataValue,
    OffsetKey,
    read_group,
    read_key,
    read_offset,
)

logger = logging.getLogger(__name__)


def partition_of(group_id: str, count: int) -> int:
    """Return the partition of `__consumer_offsets` that holds the group, out of `count` partitions.

    As in Kafka, the number is the hash of the Java String, modulo `count`.
    """
    data = group_id.encode("utf-16-be", "surrogatepass")
    code = 0
    for high, low in zip(data[::2], data[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    if code >= 0x80000000:
        code = (0x100000000 - code) & 0x7FFFFFFF  # as Kafka's Utils.abs, 0 for the smallest int
    return code % count


class Load:
    """The groups of one partition, while this broker reads the partition's records in the order of the log.

    `epoch`: the partition's leader epoch in which this broker reads the records.
    """

    def __init__(self, partition: int, epoch: int) -> None:
        self.partition = partition
        self.epoch = epoch
        self._values: dict[str, bytes] = {}
        """The value of each group's last record. It is decoded after all records have been read."""
        self._offsets: dict[str, GroupOffsets] = {}

    def add(self, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Process the next records (key, value). Skip unreadable records with a warning."""
        for key, value in records:
            try:
                self._add(key, value)
            except ValueError as error:
                logger.warning(
                    "skipping a record of __consumer_offsets-%d: %s", self.partition, error
                )

    def _add(self, key: bytes | None, value: bytes | None) -> None:
        if key is None:
            raise ValueError("it has no key")
        named = read_key(key)
        if isinstance(named, OffsetKey):
            offsets = self._offsets.get(named.group)
            if offsets is None:
                offsets = self._offsets[named.group] = GroupOffsets(named.group)
            offsets.load(named.tp, None if value is None else read_offset(value))
        elif not isinstance(named, GroupKey):
            raise ValueError(f"version {named.version} of its key is unknown")
        elif value is None:
            self._values.pop(named.group, None)
        else:
            self._values[named.group] = value

    def groups(self) -> Iterator[Group]:
        """Yield the groups that exist after the last record of the log."""
        for group_id, data in self._values.items():
            offsets = self._offsets.pop(group_id, None) or GroupOffsets(group_id)
            group = Group(group_id, self.partition, offsets, NO_TIMESTAMP)
            value = self._read(group_id, data)
            if value is not None:
                group.restore(value)
            yield group
        for group_id, offsets in self._offsets.items():
            if not offsets.is_unused():
                yield Group(group_id, self.partition, offsets, NO_TIMESTAMP)

    def _read(self, group_id: str, data: bytes) -> GroupMetadataValue | None:
        try:
            return read_group(data)
        except ValueError as error:
            text = "the members of group %s are lost, because their record cannot be read: %s"
            logger.warning(text, group_id, error)
            return None
