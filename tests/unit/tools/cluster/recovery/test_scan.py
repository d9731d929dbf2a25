"""What the log directories of brokers that are down contain."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.storage.replica_logs import Producer, batch

from minikafka.base.config import BrokerConfig, TopicConfig
from minikafka.base.errors import DirectoryInUse
from minikafka.base.model import TopicPartition
from minikafka.base.names import TRANSACTION_TOPIC
from minikafka.kafka.records.header import HEADER, PRODUCER_ID
from minikafka.runtime.clock import SystemClock
from minikafka.runtime.storage import DiskStorage
from minikafka.runtime.tasks import ThreadExecutor
from minikafka.storage.log.manager import LogManager
from minikafka.tools.cluster.directory import ClusterDirectory
from minikafka.tools.cluster.recovery.scan import DirectoryScan, scan

CLUSTER = "iDeNtItYiDeNtItYiDeNtA"
ID = b"i" * 16
TP = TopicPartition("t", 0)


def configured(tmp_path: Path) -> tuple[ClusterDirectory, LogManager]:
    directory = ClusterDirectory(tmp_path)
    keys = {"broker.id": 1, "log.dirs": str(directory.broker_data(1))}
    directory.write_broker_file(1, keys)
    config = BrokerConfig.from_mapping(keys)
    return directory, LogManager(DiskStorage(), config, SystemClock(), ThreadExecutor())


async def scanned(directory: ClusterDirectory) -> DirectoryScan:
    return await scan(directory, [1], SystemClock(), lambda *_: None)


async def test_replica_is_found_with_its_epochs_its_end_and_its_topic_id(tmp_path: Path) -> None:
    directory, manager = configured(tmp_path)
    await manager.start(CLUSTER)
    log = manager.create(TP, ID, TopicConfig(), True)
    data = bytearray(batch([b"a", b"b"], 0, epoch=3, producer=Producer(77, 0), sequence=0))
    header = HEADER.unpack_from(data)
    assert header[PRODUCER_ID] == 77
    log.append(memoryview(data), header, 3, 0)
    log.epochs.assign(5, 2)  # a leadership in which nothing was written
    await manager.close()
    found = await scanned(directory)
    [replica] = found.replicas
    assert replica[:6] == (1, TP, ID, 3, 2, 5)
    assert found.producer_id == 77


async def test_log_whose_records_are_all_deleted_keeps_the_epoch_of_the_last_one(
    tmp_path: Path,
) -> None:
    """Otherwise a replica that was dead meanwhile looks longer, and offsets are given out again."""
    directory, manager = configured(tmp_path)
    await manager.start(CLUSTER)
    log = manager.create(TP, ID, TopicConfig(), True)
    data = bytearray(batch([b"a", b"b"], 0, epoch=3))
    log.append(memoryview(data), HEADER.unpack_from(data), 3, 0)
    log.flush()
    log.advance_log_start_offset(2)
    manager.checkpoint()
    await manager.close()
    [replica] = (await scanned(directory)).replicas
    assert (replica.last_epoch, replica.end_offset) == (3, 2)


async def test_damaged_batch_of_transactions_is_skipped(tmp_path: Path) -> None:
    """One flipped bit on one broker is no reason to rebuild nothing."""
    directory, manager = configured(tmp_path)
    await manager.start(CLUSTER)
    log = manager.create(TopicPartition(TRANSACTION_TOPIC, 0), ID, TopicConfig(), True)
    data = bytearray(batch([b"a"], 0, epoch=3))
    data[-1] ^= 1
    log.append(memoryview(data), HEADER.unpack_from(data), 3, 0)
    await manager.close()
    [replica] = (await scanned(directory)).replicas
    assert (replica.last_epoch, replica.end_offset) == (3, 1)


async def test_scan_refuses_the_log_directory_of_a_running_broker(tmp_path: Path) -> None:
    directory, manager = configured(tmp_path)
    await manager.start(CLUSTER)
    with pytest.raises(DirectoryInUse, match="is in use"):
        await scanned(directory)
    await manager.close()


async def test_highest_controller_epoch_is_read_from_the_ledger(tmp_path: Path) -> None:
    directory, manager = configured(tmp_path)
    await manager.start(CLUSTER)
    await manager.close()
    ledger = directory.broker_ledger(1)
    ledger.mkdir()
    for name, epoch in (("a", 7), ("b", 41)):
        (ledger / name).write_text(f'{{"controller_epoch": {epoch}, "x": 99}}\n')
    assert (await scanned(directory)).controller_epoch == 41
