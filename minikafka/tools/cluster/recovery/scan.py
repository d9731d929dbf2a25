"""The replicas, epochs and producer ids in the log directories of the brokers, which must be down.

The logs are opened and recovered as at the start of a broker: a torn tail is cut off.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import CorruptBatch, StorageFailed
from minikafka.base.names import TRANSACTION_TOPIC
from minikafka.base.ports import Clock
from minikafka.deciders.transactions.records import read_transaction_value
from minikafka.kafka.records.batch import records
from minikafka.kafka.records.header import (
    BATCH_LENGTH,
    HEADER,
    HEADER_BYTES,
    LEADER_EPOCH,
    OVERHEAD,
    PRODUCER_ID,
)
from minikafka.runtime.storage import DiskStorage
from minikafka.runtime.tasks import ThreadExecutor
from minikafka.storage.log import epochs
from minikafka.storage.log.log import Log
from minikafka.storage.log.manager import LogManager
from minikafka.tools.cluster.directory import ClusterDirectory, ClusterError
from minikafka.tools.cluster.recovery.plan import FoundReplica

_CONTROLLER_EPOCH: Final = re.compile(rb'"controller_epoch": ?(\d{1,9})\b')
_BUFFER_BYTES: Final = 256 * 1024

Progress = Callable[[str, int, int], None]
"""Called with the name of a step, the amount done and the total amount."""


@dataclass(slots=True)
class DirectoryScan:
    """What the log directories contain. `producer_id` and `controller_epoch`: the highest that was found, or -1."""

    replicas: list[FoundReplica] = field(default_factory=list)
    producer_id: int = -1
    controller_epoch: int = -1


async def scan(
    directory: ClusterDirectory, brokers: Sequence[int], clock: Clock, on_progress: Progress
) -> DirectoryScan:
    """Read the log directories of these brokers. Raises ClusterError, ConfigError, StorageFailed."""
    found = DirectoryScan()
    for broker_id in brokers:
        config = directory.broker_config(broker_id)
        if config is None:
            raise ClusterError(
                f"{directory.broker_file(broker_id)} is missing or invalid: restore it"
            )
        manager = LogManager(DiskStorage(), config, clock, ThreadExecutor())
        known = _checkpointed_epochs(config)
        try:
            await manager.start(directory.cluster_id(broker_id))
            if manager.offline_directories:
                failed = ", ".join(manager.offline_directories)
                raise ClusterError(f"broker {broker_id} cannot read {failed}: mend it first")
            await manager.executor.run(partial(_read, found, config, manager, known, on_progress))
        except StorageFailed as failure:
            raise ClusterError(
                f"the log directory of broker {broker_id} failed: {failure}"
            ) from failure
        finally:
            await manager.close()
        epoch = _controller_epoch(directory.broker_ledger(broker_id))
        found.controller_epoch = max(found.controller_epoch, epoch)
    return found


def _read(
    found: DirectoryScan,
    config: BrokerConfig,
    manager: LogManager,
    checkpointed: Mapping[str, int],
    on_progress: Progress,
) -> None:
    step = f"reading the logs of broker {config.broker_id}"
    for number, log in enumerate(manager.logs.values()):
        on_progress(step, number, len(manager.logs))
        epoch, producer_id = _highest_in(log)
        known = max((producer.producer_id for producer in log.producers.active()), default=-1)
        found.producer_id = max(found.producer_id, producer_id, known)
        epoch = max(epoch, checkpointed.get(log.directory, -1))
        found.replicas.append(_replica(config.broker_id, log, epoch))
    on_progress(step, 1, 1)


def _checkpointed_epochs(config: BrokerConfig) -> dict[str, int]:
    """Return the highest epoch in each leader-epoch-checkpoint, by directory of the replica.

    Opening a log forgets an epoch in which nothing was written.
    """
    found = {}
    for log_dir in config.log_dirs:
        for file in Path(log_dir).glob(f"*/{epochs.FILE_NAME}"):
            with suppress(OSError, ValueError):
                found[str(file.parent)] = max(
                    epoch for epoch, _ in epochs.decode(file.read_bytes())
                )
    return found


def _replica(broker_id: int, log: Log, epoch: int) -> FoundReplica:
    epoch = max(epoch, log.epochs.latest)
    written = [epoch for epoch, start in log.epochs.entries if start < log.log_end_offset]
    if log.log_end_offset == log.log_start_offset > 0:
        written = [epoch]  # all records are deleted; -1 would be less than that of a shorter log
    return FoundReplica(
        broker_id,
        log.tp,
        log.topic_id,
        written[-1] if written else -1,
        log.log_end_offset,
        epoch,
        log.gaps.first_dirty_offset is not None,
    )


def _highest_in(log: Log) -> tuple[int, int]:
    """Return the highest leader epoch and the highest producer id in the files of a log; -1 if there is none."""
    epoch = producer_id = -1
    for file in sorted(Path(log.directory).glob("*.log")):
        for batch_epoch, batch_id in _batches(file, log.tp.topic == TRANSACTION_TOPIC):
            epoch, producer_id = max(epoch, batch_epoch), max(producer_id, batch_id)
    return epoch, producer_id


def _batches(file: Path, names_producers: bool) -> Iterator[tuple[int, int]]:
    """Yield the leader epoch and the highest producer id of each batch. `names_producers`: also in its records."""
    with file.open("rb", buffering=_BUFFER_BYTES) as log:
        while len(head := log.read(HEADER_BYTES)) == HEADER_BYTES:
            header = HEADER.unpack(head)
            rest = header[BATCH_LENGTH] + OVERHEAD - HEADER_BYTES
            if rest < 0:
                return  # preallocated space
            producer_id = header[PRODUCER_ID]
            if names_producers:
                producer_id = max(producer_id, *_named_producers(head + log.read(rest)), -1)
            else:
                log.seek(rest, os.SEEK_CUR)
            yield header[LEADER_EPOCH], producer_id


def _named_producers(batch: bytes) -> list[int]:
    """Return the producer ids in the records of a batch of transactions; [] if the batch is damaged.

    The other replicas have the batch too, and the coordinator skips it as well.
    """
    try:
        values = [record.value for record in records(batch) if record.value]
        return [read_transaction_value(bytes(value)).producer_id for value in values]
    except (CorruptBatch, ValueError):
        return []


def _controller_epoch(ledger: Path) -> int:
    """Return the highest controller epoch in a broker's ledger, -1 if there is none."""
    epochs = [-1]
    for file in ledger.glob("*"):
        if file.is_file():
            epochs += map(int, _CONTROLLER_EPOCH.findall(file.read_bytes()))
    return max(epochs)
