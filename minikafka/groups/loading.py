"""The groups of one partition of `__consumer_offsets`, while this broker reads them from the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

from minikafka.base.coordinators import NO_TRANSACTION, LoadedRecord
from minikafka.groups.group import Group
from minikafka.groups.messages.records import (
    NO_TIMESTAMP,
    GroupKey,
    GroupMetadataValue,
    OffsetKey,
    read_group,
    read_key,
    read_offset,
)
from minikafka.groups.offsets import GroupOffsets, PendingCommits

logger = logging.getLogger(__name__)


class LoadingPartition:
    """The groups of one partition, while this broker reads the partition's records in the order of the log.

    `epoch`: the partition's leader epoch in which this broker reads the records. `new_token` returns the token of a
    commit; each token is greater than the earlier tokens.
    """

    def __init__(self, partition: int, epoch: int, new_token: Callable[[], int]) -> None:
        self.partition = partition
        self.epoch = epoch
        self.transactions = PendingCommits()
        self._new_token = new_token
        self._values: dict[str, bytes] = {}
        """The value of each group's last record. It is decoded after all records have been read."""
        self._offsets: dict[str, GroupOffsets] = {}

    def add(self, records: Iterable[LoadedRecord]) -> None:
        """Process the next records. Skip unreadable records with a warning."""
        for key, value, producer_id in records:
            try:
                if producer_id == NO_TRANSACTION:
                    self._add(key, value)
                else:
                    self._add_pending(key, value, producer_id)
            except ValueError as error:
                logger.warning(
                    "skipping a record of __consumer_offsets-%d: %s", self.partition, error
                )

    def _add(self, key: bytes | None, value: bytes | None) -> None:
        if key is None:
            raise ValueError("it has no key")
        named = read_key(key)
        if isinstance(named, OffsetKey):
            self._offsets_of(named).load(named.tp, None if value is None else read_offset(value))
        elif not isinstance(named, GroupKey):
            raise ValueError(f"version {named.version} of its key is unknown")
        elif value is None:
            self._values.pop(named.group, None)
        else:
            self._values[named.group] = value

    def _add_pending(self, key: bytes | None, value: bytes | None, producer_id: int) -> None:
        """Process a record of a transaction, whose offset is committed when the transaction is committed."""
        named = None if key is None else read_key(key)
        if value is None or not isinstance(named, OffsetKey):
            raise ValueError("a transaction can only commit an offset")
        token, offsets = self._new_token(), self._offsets_of(named)
        offsets.begin(token, {named.tp: read_offset(value)})
        self.transactions.add(producer_id, offsets, token)

    def _offsets_of(self, named: OffsetKey) -> GroupOffsets:
        offsets = self._offsets.get(named.group)
        if offsets is None:
            offsets = self._offsets[named.group] = GroupOffsets(named.group)
        return offsets

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
