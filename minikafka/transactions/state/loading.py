"""The loading of the transactional ids of one partition of `__transaction_state`."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from minikafka.base.coordinators import LoadedRecord
from minikafka.transactions.state.metadata import Metadata
from minikafka.transactions.state.records import read_transaction_key, read_transaction_value

logger = logging.getLogger(__name__)


class Load:
    """The transactional ids of one partition, while this broker reads its records in the order of the log.

    `epoch`: the partition's leader epoch in which this broker reads the records.
    """

    def __init__(self, partition: int, epoch: int) -> None:
        self.partition = partition
        self.epoch = epoch
        self.ids: dict[str, Metadata] = {}
        """Transactional id → its last record so far."""

    def add(self, records: Iterable[LoadedRecord]) -> None:
        """Process the next records. Skip unreadable records with a warning."""
        for record in records:
            try:
                self._add(record)
            except ValueError as error:
                logger.warning(
                    "skipping a record of __transaction_state-%d: %s", self.partition, error
                )

    def _add(self, record: LoadedRecord) -> None:
        if record.key is None:
            raise ValueError("it has no key")
        name = read_transaction_key(record.key)
        if record.value is None:
            self.ids.pop(name, None)
        else:
            self.ids[name] = read_transaction_value(record.value)
