"""The logs of a broker: ownership of directories, restarts, and disk failures."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.storage.logs import batch, config, produce, read_all, remove_below

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import ConfigError, DirectoryInUse, StorageFailed
from minikafka.base.model import TopicPartition
from minikafka.simulation.clocks import ManualClock
from minikafka.simulation.descriptors import FewDescriptors
from minikafka.simulation.files import NAMES, former_bytes
from minikafka.simulation.storage import MemoryStorage
from minikafka.storage.log.manager import LogManager

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b-c", 0)
ID, OTHER_ID = bytes(range(16)), bytes(range(1, 17))
SMALL = config(segment_bytes=3 * len(batch()))


class Inline:
    """An Executor that runs every function at once."""

    async def run(self, function: Callable[[], Any]) -> Any:
        return function()


def manager(
    storage: MemoryStorage, *directories: str, broker_id: int = 1, mode: str = "controller"
) -> LogManager:
    dirs = directories or ("/d",)
    settings = BrokerConfig(broker_id=broker_id, log_dirs=dirs, minikafka_coordination=mode)
    return LogManager(storage, settings, ManualClock(), Inline())


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


async def started(
    storage: MemoryStorage, *directories: str, cluster: str | None = "c1"
) -> LogManager:
    logs = manager(storage, *directories)
    await logs.start(cluster)
    return logs


def live(logs: LogManager) -> list[str]:
    """Return the paths of the live log directories."""
    return [directory.path for directory in logs.directories() if directory.replicas is not None]


class TestIdentity:
    @pytest.mark.key("broker.id", "log.dirs")
    async def test_first_start_writes_broker_and_cluster_id(self, storage: MemoryStorage) -> None:
        await started(storage)
        text = storage.read("/d/meta.properties").decode()
        assert "version=0\nbroker.id=1\ncluster.id=c1\n" in text

    async def test_later_start_keeps_the_cluster_id(self, storage: MemoryStorage) -> None:
        await (await started(storage)).close()
        await started(storage, cluster=None)
        assert b"cluster.id=c1\n" in storage.read("/d/meta.properties")

    async def test_data_of_another_broker_or_cluster_is_refused(
        self, storage: MemoryStorage
    ) -> None:
        await (await started(storage)).close()
        with pytest.raises(ConfigError, match=r"set broker\.id = 1"):
            await manager(storage.clone(), broker_id=2).start("c1")
        with pytest.raises(ConfigError, match="belongs to cluster c1, not c2"):
            await manager(storage.clone()).start("c2")

    @pytest.mark.key("minikafka.coordination")
    async def test_directory_of_the_other_coordination_mode_is_refused(
        self, storage: MemoryStorage
    ) -> None:
        await (await started(storage)).close()
        with pytest.raises(ConfigError, match="mode controller, but this broker has the mode lead"):
            await manager(storage.clone(), mode="leaders").start("c1")

        leaders = MemoryStorage()
        await manager(leaders, mode="leaders").start("c1")
        assert b"minikafka.coordination=leaders\n" in leaders.read("/d/meta.properties")
        with pytest.raises(ConfigError, match=r"set minikafka\.coordination=leaders"):
            await manager(leaders.clone()).start("c1")

    async def test_directory_without_a_mode_belongs_to_the_controller_mode(
        self, storage: MemoryStorage
    ) -> None:
        storage.make_directories("/d")
        storage.write_atomically("/d/meta.properties", b"version=0\nbroker.id=1\n")
        with pytest.raises(ConfigError, match="coordination mode controller"):
            await manager(storage.clone(), mode="leaders").start("c1")
        await started(storage)
        assert b"minikafka.coordination=controller\n" in storage.read("/d/meta.properties")

    async def test_directory_that_another_process_uses_is_refused(
        self, storage: MemoryStorage
    ) -> None:
        first = await started(storage)
        with pytest.raises(DirectoryInUse, match=r"is in use: .* holds .*; stop that process"):
            manager(storage).lock()
        await first.close()
        await started(storage)

    async def test_meta_properties_keeps_entries_that_another_tool_added(
        self, storage: MemoryStorage
    ) -> None:
        storage.make_directories("/d")
        storage.write_atomically("/d/meta.properties", b"version=0\ndirectory.id=xyz\n")
        await started(storage)
        assert b"directory.id=xyz\n" in storage.read("/d/meta.properties")


class TestRestart:
    @pytest.mark.row("R25", "B4")
    async def test_restart_after_a_clean_stop_restores_logs_and_checkpointed_offsets(
        self, storage: MemoryStorage
    ) -> None:
        logs = await started(storage)
        for tp in (A0, A1, B0):
            produce(logs.create(tp, ID, SMALL, is_new=True), *[1] * 5)
        logs.logs[A0].advance_log_start_offset(4)
        logs.checkpoint_high_watermarks({A0: 5, A1: 3})
        data = read_all(logs.logs[B0])
        await logs.close()
        assert storage.exists("/d/.kafka_cleanshutdown")

        again = await started(storage)
        assert not storage.exists("/d/.kafka_cleanshutdown")
        assert sorted(again.logs) == [A0, A1, B0]
        assert again.high_watermarks == {A0: 5, A1: 3, B0: 0}
        assert read_all(again.logs[B0]) == data
        assert again.logs[A0].log_start_offset == 4
        assert again.logs[A0].recovery_point == 5
        assert again.logs[A0].topic_id == ID

    async def test_removal_of_the_clean_shutdown_marker_is_durable_before_a_log_is_opened(
        self, storage: MemoryStorage
    ) -> None:
        """Otherwise the start after a power loss would trust logs that were written after the marker."""
        logs = await started(storage)
        produce(logs.create(A0, ID, SMALL, is_new=True), 1)
        await logs.close()
        storage.synced.clear()
        is_durable: list[bool] = []

        def note(path: str) -> None:
            if path.startswith("/d/a-0/"):
                is_durable.append("/d" in storage.synced)

        storage.before_open = note
        await started(storage)
        assert is_durable
        assert all(is_durable)

    @pytest.mark.row("B4", "C14")
    async def test_high_watermark_is_at_most_the_log_end_after_a_kill(
        self, storage: MemoryStorage
    ) -> None:
        logs = await started(storage)
        log = logs.create(A0, ID, SMALL, is_new=True)
        produce(log, *[1] * 5)
        logs.checkpoint_high_watermarks({A0: 5})
        del storage.files[f"{log.directory}/{3:020d}.log"][10:]
        again = await started(storage.clone())
        assert again.logs[A0].log_end_offset == 3
        assert again.high_watermarks == {A0: 3}

    async def test_empty_checkpoint_files_are_ignored(self, storage: MemoryStorage) -> None:
        logs = await started(storage)
        produce(logs.create(A0, ID, SMALL, is_new=True), *[1] * 5)
        logs.checkpoint_high_watermarks({A0: 5})
        logs.checkpoint()
        for name in storage.names("/d"):
            if name.endswith("checkpoint"):
                storage.files[f"/d/{name}"][:] = b""
        again = await started(storage.clone())
        assert again.high_watermarks == {A0: 0}
        assert again.logs[A0].log_end_offset == 5

    async def test_high_watermark_checkpoint_keeps_partitions_that_are_not_updated(
        self, storage: MemoryStorage
    ) -> None:
        logs = await started(storage)
        for tp in (A0, A1):
            produce(logs.create(tp, ID, SMALL, is_new=True), 1, 1)
        logs.checkpoint_high_watermarks({A0: 2, A1: 2})
        again = await started(storage.clone())
        again.checkpoint_high_watermarks({A0: 1})
        assert again.storage.read("/d/replication-offset-checkpoint") == b"0\n2\na 0 1\na 1 2\n"

    async def test_subdirectory_that_is_not_a_log_is_kept_and_reported_once(
        self, storage: MemoryStorage, caplog: pytest.LogCaptureFixture
    ) -> None:
        storage.make_directories("/d/lost+found")
        storage.make_directories("/d/no-number-x")
        storage.write_atomically("/d/file-0", b"")
        assert (await started(storage)).logs == {}
        assert storage.exists("/d/lost+found")
        for name in ("lost+found", "no-number-x"):
            assert caplog.text.count(f"ignoring '/d/{name}'") == 1

    @pytest.mark.parametrize(
        "name",
        [
            "a b-0",
            "t\n-0",
            "\udcff-0",
            "t-٣",
            "t-01",
            "y-99999999999",
            "..-0",
            "ü-0",
            "x" * 250 + "-0",
        ],
    )
    async def test_directory_without_a_partition_name_is_not_opened_as_a_log(
        self, storage: MemoryStorage, name: str
    ) -> None:
        storage.make_directories(f"/d/{name}")
        logs = await started(storage)
        logs.checkpoint_high_watermarks({})
        assert logs.logs == {}
        assert storage.exists(f"/d/{name}")

    async def test_one_partition_in_two_directories_is_refused(
        self, storage: MemoryStorage
    ) -> None:
        for path in ("/d/a-0", "/e/a-0"):
            storage.make_directories(path)
        with pytest.raises(ConfigError, match="both in /d/a-0 and in /e/a-0"):
            await started(storage, "/d", "/e")

    async def test_lower_recovery_point_is_written_before_a_truncation(
        self, storage: MemoryStorage
    ) -> None:
        logs = await started(storage)
        log = logs.create(A0, ID, SMALL, is_new=True)
        produce(log, *[1] * 8)
        log.sync()
        logs.checkpoint()
        assert storage.read("/d/recovery-point-offset-checkpoint") == b"0\n1\na 0 8\n"
        log.truncate_to(2)
        assert storage.read("/d/recovery-point-offset-checkpoint") == b"0\n1\na 0 2\n"

    async def test_sealed_segments_are_synced_in_the_executor(self, storage: MemoryStorage) -> None:
        logs = await started(storage)
        produce(logs.create(A0, ID, SMALL, is_new=True), *[1] * 8)
        await logs.syncs.sync_rolled()
        logs.checkpoint()
        assert storage.read("/d/recovery-point-offset-checkpoint") == b"0\n1\na 0 6\n"
        synced = set(storage.synced)
        assert {f"/d/a-0/{3:020d}{kind}" for kind in (".log", ".index", ".timeindex")} <= synced
        assert {f"/d/a-0/{end:020d}.snapshot" for end in (3, 6)} <= synced

    async def test_log_start_checkpoint_lists_only_logs_that_start_inside_a_segment(
        self, storage: MemoryStorage
    ) -> None:
        logs = await started(storage)
        for tp, start in ((A0, 4), (A1, 3), (B0, 0)):
            log = logs.create(tp, ID, SMALL, is_new=True)
            produce(log, *[1] * 8)
            remove_below(log, start)
        logs.checkpoint()
        assert storage.read("/d/log-start-offset-checkpoint") == b"0\n1\na 0 4\n"


class TestTopics:
    @pytest.mark.row("R69", "R66")
    async def test_replica_with_another_topic_id_is_renamed_as_a_stray(
        self, storage: MemoryStorage
    ) -> None:
        logs = await started(storage)
        produce(logs.create(A0, ID, SMALL, is_new=True), 1)
        fresh = logs.create(A0, OTHER_ID, SMALL, is_new=True)
        assert (fresh.log_end_offset, fresh.topic_id) == (0, OTHER_ID)
        (stray,) = (name for name in storage.names("/d") if name.endswith("-stray"))
        assert storage.read(f"/d/{stray}/{0:020d}.log")
        again = await started(storage.clone())
        assert list(again.logs) == [A0]
        assert again.storage.exists(f"/d/{stray}")

    async def test_replica_without_a_topic_id_gets_the_id_of_the_topic(
        self, storage: MemoryStorage
    ) -> None:
        logs = await started(storage)
        logs.create(A0, None, SMALL, is_new=True)
        assert logs.create(A0, ID, SMALL, is_new=False).topic_id == ID
        assert logs.create(A0, None, SMALL, is_new=False).topic_id == ID

    @pytest.mark.row("C15", "R66")
    @pytest.mark.key("file.delete.delay.ms")
    async def test_a_deleted_log_is_renamed_then_removed(self, storage: MemoryStorage) -> None:
        logs = await started(storage)
        for tp in (A0, B0):
            produce(logs.create(tp, ID, SMALL, is_new=True), 1)
        logs.rename_for_deletion(A0)
        logs.rename_for_deletion(A1)
        assert logs.get(A0) is None
        assert [name for name in storage.names("/d") if name.endswith("-delete")]
        assert list((await started(storage.clone())).logs) == [B0], "a restart removes them too"
        delay = SMALL.file_delete_delay_ms
        await logs.delete_renamed(logs.clock.now() + delay - 1)
        assert [name for name in storage.names("/d") if name.endswith("-delete")]
        await logs.delete_renamed(logs.clock.now() + delay)
        assert not [name for name in storage.names("/d") if name.endswith("-delete")]

    async def test_failed_deletion_does_not_stop_other_deletions(
        self, storage: MemoryStorage
    ) -> None:
        logs = await started(storage)
        for tp in (A0, B0):
            logs.create(tp, ID, SMALL, is_new=True)
            logs.rename_for_deletion(tp)
        first, second = sorted(name for name in storage.names("/d") if name.endswith("-delete"))
        storage.fail(f"/d/{first}")
        with pytest.raises(StorageFailed):
            await logs.delete_renamed(logs.clock.now() + SMALL.file_delete_delay_ms)
        assert first in storage.names("/d")
        assert second not in storage.names("/d")

    async def test_the_longest_topic_name_can_be_deleted(self, storage: MemoryStorage) -> None:
        logs = await started(storage)
        tp = TopicPartition("x" * 249, 99_999)
        logs.create(tp, ID, SMALL, is_new=True)
        logs.rename_for_deletion(tp)
        assert max(len(name) for name in storage.names("/d")) <= 255


class TestFailedDirectory:
    @pytest.mark.row("R67")
    async def test_failed_directory_loses_only_its_own_partitions(
        self, storage: MemoryStorage
    ) -> None:
        logs = await started(storage, "/d", "/e")
        first, second = (logs.create(tp, ID, SMALL, is_new=True) for tp in (A0, A1))
        assert {log.directory.rpartition("/")[0] for log in (first, second)} == {"/d", "/e"}
        lost = logs.fail_directory(f"{first.directory}/{0:020d}.log")
        assert lost == [A0]
        assert logs.fail_directory(first.directory) == []
        assert logs.offline == {A0}
        assert live(logs) == [second.directory.rpartition("/")[0]]
        with pytest.raises(StorageFailed):
            produce(first, 1)
        produce(second, 1)

    @pytest.mark.row("R67")
    async def test_replica_that_may_be_in_an_offline_directory_is_not_created_elsewhere(
        self, storage: MemoryStorage
    ) -> None:
        logs = await started(storage, "/d", "/e")
        logs.fail_directory("/d")
        with pytest.raises(StorageFailed):
            logs.create(A0, ID, SMALL, is_new=False)
        assert logs.create(A1, ID, SMALL, is_new=True).directory == "/e/a-1"

    async def test_no_log_is_created_without_a_live_directory(self, storage: MemoryStorage) -> None:
        logs = await started(storage)
        logs.fail_directory("/d")
        with pytest.raises(StorageFailed):
            logs.create(A0, ID, SMALL, is_new=True)

    async def test_start_continues_without_a_failed_directory(self, storage: MemoryStorage) -> None:
        storage.fail("/d", errno.EIO)
        logs = await started(storage, "/d", "/e")
        assert live(logs) == ["/e"]

    async def test_start_fails_when_the_last_live_directory_fails(
        self, storage: MemoryStorage
    ) -> None:
        storage.fail("/d", errno.EIO)
        with pytest.raises(StorageFailed):
            await started(storage)

    async def test_stop_is_not_clean_when_a_log_could_not_be_saved(
        self, storage: MemoryStorage
    ) -> None:
        logs = await started(storage)
        produce(logs.create(A0, ID, SMALL, is_new=True), 1)
        storage.fail("/d/a-0", errno.EIO)
        await logs.close()
        assert not storage.exists("/d/.kafka_cleanshutdown")
        assert storage.locks == {}


async def test_idle_producers_expire_at_a_checkpoint(storage: MemoryStorage) -> None:
    logs = await started(storage)
    log = logs.create(A0, ID, SMALL, is_new=True)
    produce(log, 1, producer_id=5, producer_epoch=0, base_sequence=0)
    logs.checkpoint()
    assert len(log.producers) == 1
    logs.checkpoint()
    assert len(log.producers) == 0


@pytest.mark.key("minikafka.producer.ids.max", "minikafka.producer.ids.keep.ms")
async def test_idle_producers_are_forgotten_early_when_the_broker_knows_many(
    storage: MemoryStorage,
) -> None:
    settings = replace(
        BrokerConfig(),
        broker_id=1,
        log_dirs=("/d",),
        minikafka_producer_ids_max=100,
        minikafka_producer_ids_keep_ms=90_000,
        producer_id_expiration_ms=1 << 60,
    )
    logs = LogManager(storage, settings, ManualClock(), Inline())
    await logs.start("c1")
    small, large = (logs.create(tp, ID, SMALL, is_new=True) for tp in (A0, A1))
    for log, count in ((small, 20), (large, 70)):
        for producer in range(count):
            produce(log, 1, producer_id=producer, producer_epoch=0, base_sequence=0)
    for _ in range(2):
        logs.checkpoint()
        assert (len(small.producers), len(large.producers)) == (20, 70)
    logs.checkpoint()
    assert (len(small.producers), len(large.producers)) == (20, 30), "idle for two whole intervals"
    assert logs.producer_room.count == 50


class TestNewLogs:
    async def test_directory_of_a_new_replica_contains_only_its_topic_id(
        self, storage: MemoryStorage
    ) -> None:
        logs = await started(storage)
        log = logs.create(A0, ID, SMALL, is_new=True)
        log.epochs.assign(0, 0)
        assert storage.names("/d/a-0") == ["partition.metadata"]

    async def test_replicas_of_one_topic_share_the_topic_id_file(
        self, storage: MemoryStorage
    ) -> None:
        logs = await started(storage)
        logs.create(A0, ID, SMALL, is_new=True)
        logs.create(A1, ID, SMALL, is_new=True)
        logs.create(B0, OTHER_ID, SMALL, is_new=True)
        logs.rename_for_deletion(A0)
        await logs.delete_renamed(logs.clock.now() + SMALL.file_delete_delay_ms)
        again = await started(storage.clone())
        assert {tp: log.topic_id for tp, log in again.logs.items()} == {A1: ID, B0: OTHER_ID}

    async def test_epochs_of_a_new_log_are_recovered_after_a_crash(
        self, storage: MemoryStorage
    ) -> None:
        logs = await started(storage)
        log = logs.create(A0, ID, SMALL, is_new=True)
        log.epochs.assign(3, 0)
        produce(log, 1, 1, epoch=3)
        again = (await started(storage.clone())).logs[A0]
        assert (again.epochs.entries, again.log_end_offset) == ([(3, 0)], 2)

    async def test_epoch_file_is_written_before_a_segment_counts_as_durable(
        self, storage: MemoryStorage
    ) -> None:
        logs = await started(storage)
        log = logs.create(A0, ID, SMALL, is_new=True)
        produce(log, 1, 1, 1, 1)
        await logs.syncs.sync_rolled()
        assert log.recovery_point == 3
        assert storage.read("/d/a-0/leader-epoch-checkpoint") == b"0\n1\n0 0\n"


class TestDirectories:
    async def test_live_directories_list_their_replicas_and_failed_directories_do_not(
        self, storage: MemoryStorage
    ) -> None:
        logs = await started(storage, "/d", "/e")
        for tp in (A0, A1):
            produce(logs.create(tp, ID, SMALL, True), 2, 2)
        shown = {directory.path: directory.replicas for directory in logs.directories()}
        (replica,) = shown["/d"] or ()
        log = logs.logs[replica.tp]
        assert (replica.size, replica.log_end_offset) == (log.written_position, 4)
        assert len(shown["/e"] or ()) == 1
        logs.fail_directory("/e")
        assert {d.path: d.replicas is None for d in logs.directories()} == {"/d": False, "/e": True}

    async def test_replica_without_records_is_reopened_without_log_files(
        self, storage: MemoryStorage
    ) -> None:
        logs = await started(storage)
        logs.create(A0, ID, SMALL, is_new=True).epochs.assign(0, 0)
        before = len(storage.synced)
        await logs.close()
        assert not [path for path in storage.synced[before:] if path.startswith("/d/a-0")]
        again = await started(storage)
        assert storage.names("/d/a-0") == ["partition.metadata"]
        log = again.logs[A0]
        assert (log.topic_id, log.log_end_offset) == (ID, 0)
        produce(log, 1)
        assert again.logs[A0].log_end_offset == 1


@pytest.mark.key("flush.ms")
async def test_log_is_fsynced_when_its_records_have_waited_for_flush_ms(
    storage: MemoryStorage,
) -> None:
    logs = await started(storage)
    log = logs.create(A0, ID, config(flush_ms=1000), is_new=True)
    other = logs.create(A1, ID, config(), is_new=True)
    await logs.syncs.sync_overdue(0)
    produce(log, 2)
    produce(other, 2)
    await logs.syncs.sync_overdue(500)
    await logs.syncs.sync_overdue(1400)
    assert (log.recovery_point, storage.synced.count("/d/a-0")) == (0, 0)
    await logs.syncs.sync_overdue(1500)
    assert log.recovery_point == 2
    epochs = "/d/a-0/leader-epoch-checkpoint"
    assert {f"/d/a-0/{0:020d}.log", epochs, "/d/a-0"} <= set(storage.synced)
    produce(log, 1)
    await logs.syncs.sync_overdue(1600)
    await logs.syncs.sync_overdue(2599)
    assert log.recovery_point == 2
    await logs.syncs.sync_overdue(2600)
    assert (log.recovery_point, other.recovery_point) == (3, 0)


async def test_indexes_of_sealed_segments_are_fsynced_after_flush_ms(
    storage: MemoryStorage,
) -> None:
    logs = await started(storage)
    log = logs.create(A0, ID, replace(SMALL, flush_ms=0), is_new=True)
    produce(log, *[1] * 8)
    await logs.syncs.sync_overdue(0)
    assert log.recovery_point == 8
    kept = [path for segment in log.segments[:2] for path in segment.paths()[1:]]
    assert set(kept) <= set(storage.synced)


async def test_fsync_does_not_raise_the_recovery_point_if_the_log_was_truncated_meanwhile(
    storage: MemoryStorage,
) -> None:
    logs = await started(storage)
    log = logs.create(A0, ID, config(flush_ms=0), is_new=True)
    produce(log, 2, 2)

    async def run(function: Callable[[], Any]) -> Any:
        result = function()
        log.truncate_to(2)
        produce(log, 2)
        return result

    logs.executor.run = run  # type: ignore[method-assign]
    await logs.syncs.sync_overdue(0)
    assert log.recovery_point == 0


async def test_fsynced_log_in_a_new_log_directory_survives_a_power_cut() -> None:
    storage = MemoryStorage()
    logs = await started(storage, "/data/kafka/logs")
    log = logs.create(A0, ID, config(flush_messages=1), is_new=True)
    produce(log, 2)
    for names in NAMES:
        after_loss = storage.power_cut(former_bytes, names)
        again = (await started(after_loss, "/data/kafka/logs")).logs[A0]
        assert (again.log_end_offset, again.topic_id) == (2, ID)


async def test_log_directory_made_by_a_start_that_was_killed_survives_a_power_cut() -> None:
    storage = MemoryStorage()
    storage.make_directories("/data/logs", sync=False)
    storage.root.sync()
    logs = await started(storage, "/data/logs")
    produce(logs.create(A0, ID, config(flush_messages=1), is_new=True), 1)
    again = await started(storage.power_cut(former_bytes), "/data/logs")
    assert again.logs[A0].log_end_offset == 1


async def test_log_directory_whose_parent_cannot_be_read_is_used() -> None:
    storage = MemoryStorage()
    storage.make_directories("/data/logs")
    storage.fail("/data", errno.EACCES)
    storage.before_change = lambda path: storage.heal() if path != "/data" else None
    logs = await started(storage, "/data/logs")
    assert live(logs) == ["/data/logs"]


async def test_log_without_forced_fsyncs_gets_a_durable_name_and_topic_id(
    storage: MemoryStorage,
) -> None:
    logs = await started(storage)
    log = logs.create(A0, ID, SMALL, is_new=True)
    empty = logs.create(A1, ID, SMALL, is_new=True)
    produce(log, 1)
    await logs.syncs.sync_names()
    assert (log.has_durable_name, empty.has_durable_name) == (True, False)
    again = await started(storage.power_cut(former_bytes))
    assert again.logs[A0].topic_id == ID
    before = len(storage.synced)
    await logs.syncs.sync_names()
    assert len(storage.synced) == before


@pytest.mark.parametrize("sync", ["sync_names", "sync_rolled", "sync_overdue"])
async def test_topic_id_assigned_during_the_fsync_of_the_name_is_fsynced_later(
    storage: MemoryStorage, sync: str
) -> None:
    logs = await started(storage)
    log = logs.create(A0, None, replace(SMALL, flush_ms=0), is_new=True)
    produce(log, *[1] * 8)

    async def run(function: Callable[[], Any]) -> Any:
        result = function()
        logs.create(A0, ID, log.config, is_new=False)
        return result

    logs.executor.run = run  # type: ignore[method-assign]
    await (logs.syncs.sync_overdue(0) if sync == "sync_overdue" else getattr(logs.syncs, sync)())
    logs.executor.run = Inline().run  # type: ignore[method-assign]
    await logs.syncs.sync_names()
    again = await started(storage.power_cut(former_bytes))
    assert again.logs[A0].topic_id == ID


async def test_topic_id_assigned_after_the_fsync_of_the_name_is_fsynced_too(
    storage: MemoryStorage,
) -> None:
    logs = await started(storage)
    log = logs.create(A0, None, config(flush_messages=1), is_new=True)
    produce(log, 1)
    logs.create(A0, ID, log.config, is_new=False)
    produce(log, 1)
    again = await started(storage.power_cut(former_bytes))
    assert (again.logs[A0].log_end_offset, again.logs[A0].topic_id) == (2, ID)


@pytest.mark.parametrize("sync", ["sync_rolled", "sync_overdue"])
async def test_name_of_a_log_is_durable_before_its_recovery_point_rises(
    storage: MemoryStorage, sync: str
) -> None:
    logs = await started(storage)
    log = logs.create(A0, ID, replace(SMALL, flush_ms=0), is_new=True)
    produce(log, *[1] * 8)
    await (logs.syncs.sync_overdue(0) if sync == "sync_overdue" else logs.syncs.sync_rolled())
    point = log.recovery_point
    assert point >= 6
    again = await started(storage.power_cut(former_bytes))
    assert (again.logs[A0].log_end_offset, again.logs[A0].topic_id) == (point, ID)


async def test_fsync_goes_on_with_the_next_file_when_one_was_removed(
    storage: MemoryStorage,
) -> None:
    logs = await started(storage)
    log = logs.create(A0, ID, replace(SMALL, flush_ms=0), is_new=True)
    produce(log, *[1] * 8)

    def remove(path: str) -> None:
        if path == f"/d/a-0/{3:020d}.snapshot":
            storage.before_open = lambda path: None
            storage.remove(path)

    storage.before_open = remove
    await logs.syncs.sync_overdue(0)
    assert {f"/d/a-0/{6:020d}.snapshot", "/d/a-0"} <= set(storage.synced)


async def test_records_of_a_killed_process_are_fsynced_before_they_can_be_acknowledged(
    storage: MemoryStorage,
) -> None:
    logs = await started(storage)
    produce(logs.create(A0, ID, config(), is_new=True), 2)
    after_kill = storage.clone()
    again = await started(after_kill)
    again.create(A0, ID, config(flush_messages=1), is_new=False)
    after_loss = await started(after_kill.power_cut(former_bytes))
    assert after_loss.logs[A0].log_end_offset == 2


async def test_deleted_and_created_topic_gets_no_record_of_the_former_topic_after_a_power_cut(
    storage: MemoryStorage,
) -> None:
    logs = await started(storage)
    settings = config(flush_messages=1)
    produce(logs.create(A0, ID, settings, is_new=True), 5)
    logs.rename_for_deletion(A0)
    logs.sync_directories()
    produce(logs.create(A0, OTHER_ID, settings, is_new=True), 2)
    for names in NAMES:
        again = await started(storage.power_cut(former_bytes, names))
        assert (again.logs[A0].log_end_offset, again.logs[A0].topic_id) == (2, OTHER_ID)


@pytest.mark.parametrize("is_clean", [False, True])
async def test_offsets_that_a_start_lowers_are_durable_before_the_log_grows(is_clean: bool) -> None:
    storage = MemoryStorage()
    logs = await started(storage)
    compacted = replace(SMALL, cleanup_policy=("compact",))
    log = logs.create(A0, ID, compacted, is_new=True)
    produce(log, *[1] * 8)
    log.sync()
    log.gaps.mark(8)
    logs.checkpoint_high_watermarks({A0: 8})
    logs.checkpoint()
    if is_clean:
        await logs.close()
    del storage.files[f"/d/a-0/{6:020d}.log"][len(batch()) :]
    storage = storage.clone()
    await started(storage)
    left = storage.power_cut(former_bytes)
    for name in (
        "recovery-point-offset-checkpoint",
        "cleaner-offset-checkpoint",
        "replication-offset-checkpoint",
    ):
        assert left.read(f"/d/{name}") == b"0\n1\na 0 7\n", name


async def test_log_start_offset_is_durable_after_a_clean_stop(storage: MemoryStorage) -> None:
    logs = await started(storage)
    log = logs.create(A0, ID, SMALL, is_new=True)
    produce(log, *[1] * 8)
    log.advance_log_start_offset(4)
    await logs.close()
    again = await started(storage.power_cut(former_bytes))
    assert (again.logs[A0].log_start_offset, again.logs[A0].recovery_point) == (4, 8)


async def test_periodic_checkpoint_survives_a_power_cut_that_leaves_only_its_name(
    storage: MemoryStorage,
) -> None:
    logs = await started(storage)
    log = logs.create(A0, ID, config(flush_messages=1), is_new=True)
    produce(log, *[1] * 8)
    log.advance_log_start_offset(4)
    logs.checkpoint_high_watermarks({A0: 8})
    logs.checkpoint()
    await logs.sync_checkpoints()
    logs.sync_directories()
    again = await started(storage.power_cut(former_bytes))
    assert (again.logs[A0].log_start_offset, again.high_watermarks) == (4, {A0: 8})


async def test_truncation_lowers_the_checkpointed_high_watermark_first(
    storage: MemoryStorage,
) -> None:
    logs = await started(storage)
    log = logs.create(A0, ID, SMALL, is_new=True)
    produce(log, *[1] * 8)
    logs.checkpoint_high_watermarks({A0: 8})
    log.truncate_to(2)
    produce(log, *[1] * 6)
    log.sync()
    again = await started(storage.power_cut(former_bytes))
    assert (again.logs[A0].log_end_offset, again.high_watermarks) == (8, {A0: 2})


async def test_one_fsync_makes_several_renames_durable(storage: MemoryStorage) -> None:
    logs = await started(storage)
    for tp in (A0, A1, B0):
        logs.create(tp, ID, SMALL, is_new=True)
    before = len(storage.synced)
    for tp in (A0, A1, B0):
        logs.rename_for_deletion(tp)
    logs.sync_directories()
    assert storage.synced[before:] == ["/d"]


async def test_first_dirty_offset_that_is_not_persisted_is_forgotten() -> None:
    storage = MemoryStorage()
    logs = await started(storage)
    log = logs.create(A0, ID, SMALL, is_new=True)
    few = FewDescriptors(storage)
    few.fail_all()
    with pytest.raises(StorageFailed):
        await logs.mark_clean(log, 0)
    assert log.gaps.first_dirty_offset is None
    few.heal()
    await logs.mark_clean(log, 0)
    assert log.gaps.first_dirty_offset == 0


async def test_deletion_that_found_no_descriptor_is_tried_again() -> None:
    storage = MemoryStorage()
    logs = await started(storage)
    logs.create(A0, ID, SMALL, is_new=True)
    logs.rename_for_deletion(A0)
    few = FewDescriptors(storage)
    few.fail_all()
    due = logs.clock.now() + SMALL.file_delete_delay_ms
    with pytest.raises(StorageFailed):
        await logs.delete_renamed(due)
    few.heal()
    await logs.delete_renamed(due)
    assert not [name for name in storage.names("/d") if name.endswith("-delete")]


async def test_log_whose_topic_id_cannot_be_written_is_deleted_again(
    storage: MemoryStorage,
) -> None:
    logs = await started(storage)
    few = FewDescriptors(storage)
    few.fail_all(f"/d/{A0}/partition.metadata")
    with pytest.raises(StorageFailed):
        logs.create(A0, ID, config(), True)
    assert logs.get(A0) is None
    await logs.delete_renamed(logs.clock.now())
    assert not [name for name in storage.names("/d") if name.startswith(str(A0))]
    few.heal()
    assert logs.create(A0, ID, config(), True).topic_id == ID
