"""The replacement of segments by cleaned copies, and the log after a crash at any file operation of a cleaning."""

from __future__ import annotations

import re
from random import Random
from typing import Final

import pytest
from support.storage.aborted import check_indexes
from support.storage.cleaning import carry_out, task, varied_log
from support.storage.logs import (
    DIRECTORY,
    TP,
    append,
    batch,
    config,
    offsets,
    open_log,
    produce,
    read_all,
    replace_segments,
)

from minikafka.base.config.keys import LONG_MAX
from minikafka.base.errors import StorageFailed
from minikafka.kafka.records.batch import Record, records
from minikafka.kafka.records.transactions import Aborted
from minikafka.simulation.descriptors import FewDescriptors
from minikafka.simulation.files import former_bytes, names_of_last_fsync, newest_name, some_names
from minikafka.simulation.storage import MemoryStorage
from minikafka.storage.log.checkpoints import FIRST_DIRTY_OFFSETS
from minikafka.storage.log.directory import LogDirectory
from minikafka.storage.log.log import Log
from minikafka.storage.log.replacement import Replacement
from minikafka.storage.log.segments.swap import remove_copies
from minikafka.storage.log.segments.transaction_index import ENTRY

NOW: Final = 20_000_000
ABORTED: Final = Aborted(producer_id=7, first_offset=15, last_offset=25, last_stable_offset=26)
EXPECTED_FILE: Final = re.compile(
    r"\d{20}\.(log|index|timeindex|txnindex|snapshot)|leader-epoch-checkpoint|partition\.metadata"
)


class Killed(Exception):
    """The process ended in the middle of a file operation."""


class MortalStorage(MemoryStorage):
    """Storage that raises `Killed` at the file operation with number `fatal`; `operations` counts file operations."""

    def __init__(self) -> None:
        super().__init__()
        self.fatal: int | None = None
        self.operations = 0

    def failure_at(self, path: str) -> int:
        self.operations += 1
        if self.operations == self.fatal:
            raise Killed
        return super().failure_at(path)


def clean_all(log: Log) -> None:
    """Clean every segment below the active segment, and replace the segments by their copies."""
    segments = {segment.base_offset: segment for segment in log.segments}
    groups, outcome = carry_out(log.storage, task(log, NOW))
    for group in groups:
        replace_segments(log, [segments[base] for base in group.bases])
    log.gaps.mark(outcome.end_offset)


def dirty_log(storage: MemoryStorage) -> LogDirectory:
    made = varied_log(storage, DIRECTORY, Random(5), NOW, cleanup_policy=("compact",), steps=60)
    made.close()
    storage.sync_directory("/")
    storage.sync_directory("/d")
    return opened(storage)


def opened(storage: MemoryStorage) -> LogDirectory:
    directory = LogDirectory(storage, "/d")
    directory.open_logs(config(cleanup_policy=("compact",), segment_bytes=13_000))
    return directory


def killed_at(fatal: int) -> tuple[MemoryStorage, bool]:
    """Kill a cleaning at file operation number `fatal`. Return the storage, and True if the cleaning was killed."""
    storage = MortalStorage()
    log = dirty_log(storage).logs[TP]
    storage.operations, storage.fatal = 0, fatal
    try:
        clean_all(log)
    except Killed:
        return storage.clone(), True
    return storage.clone(), False


def test_cleaning_killed_at_any_file_operation_loses_no_records() -> None:
    before = dirty_log(MemoryStorage()).logs[TP]
    dirty, end, producers = set(records(read_all(before))), before.log_end_offset, before.producers
    clean_all(before)
    clean = read_all(before)
    fatal, is_killed = 0, True
    while is_killed:
        fatal += 1
        storage, is_killed = killed_at(fatal)
        log = opened(storage).logs[TP]
        found = set(records(read_all(log)))
        assert set(records(clean)) <= found <= dirty, fatal
        assert log.log_end_offset == end, fatal
        assert {each[:2] for each in log.producers.active()} == {
            each[:2] for each in producers.active()
        }, fatal
        stray = [name for name in storage.names(DIRECTORY) if not EXPECTED_FILE.fullmatch(name)]
        assert stray == [], fatal
        check_indexes(log)
        clean_all(log)
        check_indexes(log)
        assert list(records(read_all(log))) == list(records(clean)), fatal
    assert fatal > 60


def test_power_loss_at_any_file_operation_of_a_cleaning_loses_no_records() -> None:
    """Each directory has the names of its last fsync, or any subset of the later changes."""
    storage = MemoryStorage()
    log = dirty_log(storage).logs[TP]
    dirty, end = set(records(read_all(log))), log.log_end_offset
    images: list[MemoryStorage] = []

    def cut(path: str) -> None:
        models = [names_of_last_fsync, newest_name, some_names(len(images))]
        images.extend(storage.power_cut(former_bytes, names) for names in models)

    storage.before_change = cut
    clean_all(log)
    cut("")
    clean = set(records(read_all(log)))
    assert len(images) > 150
    for number, image in enumerate(images):
        again = opened(image).logs[TP]
        found = list(records(read_all(again)))
        assert clean <= set(found) <= dirty, number
        assert len(found) == len({record.offset for record in found}), number
        assert (again.log_end_offset, again.gaps.lost_from) == (end, None), number
        check_indexes(again)
        stray = [name for name in image.names(DIRECTORY) if not EXPECTED_FILE.fullmatch(name)]
        assert stray == [], number


def test_joined_segments_become_one_segment_after_the_swap() -> None:
    log = dirty_log(MemoryStorage()).logs[TP]
    bases = [segment.base_offset for segment in log.segments]
    positions = {offset: log.locate(offset) for offset in (bases[-1], log.log_end_offset)}
    generation = log.layout_generation
    clean_all(log)
    assert [segment.base_offset for segment in log.segments] == [0, *bases[2:-1:2], bases[-1]]
    assert log.segments[0].base_offset == 0
    assert {offset: log.locate(offset) for offset in positions} == positions
    assert log.layout_generation > generation


def test_files_of_replaced_segments_are_deleted_later() -> None:
    storage = MemoryStorage()
    log = dirty_log(storage).logs[TP]
    replaced = len(log.segments) - 1
    clean_all(log)
    deleted = [name for name in storage.names(DIRECTORY) if name.endswith(".log.deleted")]
    assert len(deleted) == replaced
    assert len(log.retired.take_due(10**9, 1_000)) == 0
    assert len(log.retired.take_due(2 * 10**9, 1_000)) == replaced


def test_first_dirty_offset_is_in_the_checkpoint_file_of_kafka_after_a_cleaning() -> None:
    storage = MemoryStorage()
    log = dirty_log(storage).logs[TP]
    clean_all(log)
    end = log.segments[-1].base_offset
    assert storage.read(f"/d/{FIRST_DIRTY_OFFSETS}") == f"0\n1\nt 0 {end}\n".encode()


def small_log(storage: MemoryStorage) -> Log:
    """Create a log of records 0 to 39 in four segments."""
    log = open_log(storage, segment_bytes=10 * len(batch()), cleanup_policy=("compact",))
    produce(log, *([1] * 40))
    log.close()
    return log


def copy(storage: MemoryStorage, suffix: str, base: int, *kept: int) -> None:
    """Write the files of a cleaned copy with one record per offset in `kept`, as Kafka leaves them after a crash."""
    data = b"".join(bytes(batch(base_offset=offset, leader_epoch=0)) for offset in kept)
    for kind, content in ((".log", data), (".index", b""), (".timeindex", b""), (".txnindex", b"")):
        storage.write_atomically(f"{DIRECTORY}/{base:020d}{kind}{suffix}", content)


def recovered(storage: MemoryStorage) -> Log:
    return open_log(storage, first_dirty_offset=0, recovery_point=40)


def test_restart_completes_a_swap_that_kafka_began() -> None:
    storage = MemoryStorage()
    small_log(storage)
    copy(storage, ".swap", 10, 15, 25)
    log = recovered(storage)
    assert offsets(read_all(log)) == [*range(10), 15, 25, *range(30, 40)]
    assert [segment.base_offset for segment in log.segments] == [0, 10, 30]


def test_restart_makes_the_renames_of_a_completed_swap_durable() -> None:
    storage = MemoryStorage()
    small_log(storage)
    copy(storage, ".swap", 0, 0)
    storage.synced.clear()
    recovered(storage)
    assert DIRECTORY in storage.synced


def test_restart_completes_a_swap_whose_replaced_files_are_renamed() -> None:
    storage = MemoryStorage()
    small_log(storage)
    copy(storage, ".swap", 10, 15, 25)
    for kind in (".log", ".index", ".timeindex"):
        path = f"{DIRECTORY}/{10:020d}{kind}"
        storage.rename(path, path + ".deleted")
    assert offsets(read_all(recovered(storage))) == [*range(10), 15, 25, *range(30, 40)]


def test_restart_killed_at_any_file_operation_of_a_swap_can_be_repeated() -> None:
    fatal, is_killed = 0, True
    while is_killed:
        fatal += 1
        storage = MortalStorage()
        small_log(storage)
        copy(storage, ".swap", 10, 15, 25)
        for kind in (".log", ".index", ".timeindex"):
            path = f"{DIRECTORY}/{10:020d}{kind}"
            storage.rename(path, path + ".deleted")
        storage.operations, storage.fatal = 0, fatal
        try:
            recovered(storage)
            is_killed = False
        except Killed:
            pass
        clone = storage.clone()
        log = recovered(clone)
        assert offsets(read_all(log)) == [*range(10), 15, 25, *range(30, 40)], fatal
        assert [segment.base_offset for segment in log.segments] == [0, 10, 30], fatal
        names = clone.names(DIRECTORY)
        assert not [name for name in names if name.endswith((".swap", ".deleted"))], fatal
    assert fatal > 10


def test_power_loss_at_any_file_operation_of_a_restart_that_completes_a_swap_is_harmless() -> None:
    storage = MemoryStorage()
    small_log(storage)
    storage.sync_directory("/")
    storage.sync_directory("/d")
    copy(storage, ".swap", 10, 15, 25)
    images: list[MemoryStorage] = []
    storage.before_change = lambda path: images.extend(
        storage.power_cut(former_bytes, names)
        for names in (newest_name, *(some_names(len(images) + seed) for seed in range(7)))
    )
    recovered(storage)
    assert len(images) > 100
    for number, image in enumerate(images):
        log = recovered(image)
        assert offsets(read_all(log)) == [*range(10), 15, 25, *range(30, 40)], number
        assert [segment.base_offset for segment in log.segments] == [0, 10, 30], number


def test_restart_keeps_the_indexes_of_a_copy_whose_log_is_not_renamed_yet() -> None:
    storage = MemoryStorage()
    small_log(storage)
    copy(storage, ".swap", 10, 15, 25)
    for base in (10, 20):
        for kind in (".log", ".index", ".timeindex"):
            path = f"{DIRECTORY}/{base:020d}{kind}"
            storage.rename(path, path + ".deleted")
    index = f"{DIRECTORY}/{10:020d}.txnindex"
    storage.rename(index + ".swap", index)
    storage.files[index] = bytearray(ENTRY.pack(0, *ABORTED))
    assert list(recovered(storage).segments[1].transactions) == [ABORTED]


def test_restart_replaces_the_transaction_index_of_the_first_segment_by_that_of_the_copy() -> None:
    storage = MemoryStorage()
    small_log(storage)
    copy(storage, ".swap", 10, 15, 25)
    storage.files[f"{DIRECTORY}/{10:020d}.txnindex"] = bytearray(ENTRY.pack(0, *ABORTED))
    log = recovered(storage)
    assert offsets(read_all(log)) == [*range(10), 15, 25, *range(30, 40)]
    assert not list(log.segments[1].transactions)


def test_truncation_after_the_segments_were_replaced_gives_the_copy_its_final_name() -> None:
    directory, replacement = begun(MemoryStorage())
    log = directory.logs[TP]
    replacement.sync()
    replacement.replace()
    before = list(records(read_all(log)))
    cut = log.log_end_offset - 1
    log.truncate_to(cut)
    replacement.complete()
    again = opened(log.storage.power_cut(former_bytes)).logs[TP]
    assert list(records(read_all(again))) == [one for one in before if one.offset < cut]


@pytest.mark.parametrize("base", [10, 20])
def test_restart_removes_a_cleaned_copy_whose_files_are_only_partly_renamed(base: int) -> None:
    storage = MemoryStorage()
    small_log(storage)
    copy(storage, ".swap", 20, 25)
    storage.write_atomically(f"{DIRECTORY}/{base:020d}.timeindex.cleaned", b"")
    log = recovered(storage)
    assert offsets(read_all(log)) == list(range(40))
    assert all(EXPECTED_FILE.fullmatch(name) for name in storage.names(DIRECTORY))


def test_remaining_index_of_a_complete_swap_is_renamed_at_restart() -> None:
    storage = MemoryStorage()
    small_log(storage)
    path = f"{DIRECTORY}/{10:020d}.index"
    storage.rename(path, path + ".swap")
    log = recovered(storage)
    assert offsets(read_all(log)) == list(range(40))
    assert storage.exists(path)


def test_log_is_readable_after_a_cleaned_copy_without_records_replaces_segments() -> None:
    storage = MemoryStorage()
    small_log(storage)
    log = recovered(storage)
    copy(storage, ".cleaned", 10)
    replace_segments(log, log.segments[1:3])
    kept = [*range(10), *range(30, 40)]
    assert offsets(read_all(log)) == kept
    assert offsets(log.read(log.locate(12), log.written_position, 100)[0])[:1] == [30]
    append(log)
    log.close()
    assert offsets(read_all(recovered(storage))) == [*kept, 40]


def begun(storage: MemoryStorage) -> tuple[LogDirectory, Replacement]:
    """Begin the replacement of the first group of segments; return the log directory and the replacement."""
    directory = dirty_log(storage)
    log = directory.logs[TP]
    groups, _ = carry_out(storage, task(log, NOW))
    segments = {segment.base_offset: segment for segment in log.segments}
    replacement = Replacement(log, [segments[base] for base in groups[0].bases])
    replacement.begin()
    return directory, replacement


def test_names_of_a_copy_are_durable_before_and_after_it_replaces_the_segments() -> None:
    storage = MemoryStorage()
    _, replacement = begun(storage)
    storage.synced.clear()
    replacement.sync()
    assert storage.synced == [DIRECTORY]
    replacement.replace()
    replacement.sync()
    assert storage.synced.count(DIRECTORY) == 2


def contents() -> list[list[Record]]:
    """Return two lists: the records of a log before `Replacement.replace`, and its records afterwards."""
    directory, replacement = begun(MemoryStorage())
    log = directory.logs[TP]
    original = list(records(read_all(log)))
    replacement.replace()
    return [original, list(records(read_all(log)))]


@pytest.mark.parametrize("is_complete", [False, True])
def test_truncation_killed_during_a_swap_brings_back_no_truncated_records(
    is_complete: bool,
) -> None:
    fatal, is_killed, end = 0, True, LONG_MAX
    whole = contents()
    while is_killed:
        fatal += 1
        storage = MortalStorage()
        directory, replacement = begun(storage)
        log, cut = directory.logs[TP], replacement_end(replacement) // 2
        if is_complete:
            replacement.replace()
        storage.operations, storage.fatal = 0, fatal
        try:
            log.truncate_to(cut)
            is_killed = False
        except Killed:
            pass
        clone = storage.clone()
        found = opened(clone).logs[TP]
        assert found.log_end_offset <= end, fatal
        end = found.log_end_offset
        assert list(records(read_all(found))) in [
            [record for record in each if record.offset < end] for each in whole
        ], fatal
        stray = [name for name in clone.names(DIRECTORY) if not EXPECTED_FILE.fullmatch(name)]
        assert stray == [], fatal
        check_indexes(found)
    assert end == log.log_end_offset <= cut
    assert fatal > 5


def replacement_end(replacement: Replacement) -> int:
    """Return the base offset of the segment after the replaced segments."""
    log = replacement._log
    return next(
        segment.base_offset
        for segment in log.segments
        if segment.base_offset > replacement._segments[-1].base_offset
    )


def test_segment_replacement_cannot_be_completed_after_a_truncation() -> None:
    directory, replacement = begun(MemoryStorage())
    log = directory.logs[TP]
    before = len(log.segments)
    log.truncate_to(log.log_end_offset - 1)
    with pytest.raises(ValueError, match="undone"):
        replacement.replace()
    assert len(log.segments) == before
    names = log.storage.names(DIRECTORY)
    assert not [name for name in names if name.endswith(".swap")]


def test_segment_replacement_cannot_be_completed_after_the_first_segment_is_removed() -> None:
    directory, replacement = begun(MemoryStorage())
    log = directory.logs[TP]
    log.advance_log_start_offset(log.segments[1].base_offset)
    log.remove_first_segments(1)
    with pytest.raises(ValueError, match="undone"):
        replacement.replace()
    start = log.log_start_offset
    directory.write_log_starts(sync=True)
    assert opened(log.storage.clone()).logs[TP].log_start_offset == start


def test_restarted_log_has_all_its_records_after_an_aborted_segment_replacement() -> None:
    directory, replacement = begun(MemoryStorage())
    log = directory.logs[TP]
    before = read_all(log)
    replacement.abort()
    remove_copies(log.storage, log.directory)
    assert read_all(opened(log.storage.clone()).logs[TP]) == before


def test_segment_replacement_is_tried_again_after_the_copy_found_no_descriptor() -> None:
    storage = MemoryStorage()
    directory, replacement = begun(storage)
    log = directory.logs[TP]
    before = read_all(log)
    few = FewDescriptors(storage)
    few.fail_all(DIRECTORY)
    with pytest.raises(StorageFailed) as caught:
        replacement.replace()
    assert caught.value.lacks_descriptors
    assert read_all(log) == before
    few.heal()
    replacement.replace()
    assert log.layout_generation
    produce(log, 1)
