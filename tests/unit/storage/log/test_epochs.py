"""Leader epochs: end offsets as in KIP-101, and the checkpoint file."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.storage.logs import open_log, produce

from minikafka.simulation.descriptors import FewDescriptors
from minikafka.simulation.storage import MemoryStorage
from minikafka.storage.log.epochs import LeaderEpochs, decode, encode

PATH = "/leader-epoch-checkpoint"


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(MemoryStorage(), PATH, list(entries))


@pytest.mark.row("R37")
def test_epoch_file_is_rewritten_at_every_change() -> None:
    storage = MemoryStorage()
    cache = LeaderEpochs(storage, PATH, [])
    cache.assign(0, 0)
    cache.assign(3, 17)
    assert storage.read(PATH) == b"0\n2\n0 0\n3 17\n"
    assert decode(storage.read(PATH)) == [(0, 0), (3, 17)]
    assert storage.synced == []
    cache.sync()
    cache.sync()
    assert storage.synced == [PATH]
    cache.assign(4, 20)
    cache.sync()
    assert storage.synced == [PATH, PATH]


@pytest.mark.row("R38")
@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 5)),
        (1, (1, 5)),
        (2, (2, 9)),
        (3, (2, 9)),
        (4, (4, 12)),
        (5, (4, 12)),
        (7, (7, 20)),
        (8, (-1, -1)),
    ],
)
def test_end_offset_of_an_epoch_is_the_start_offset_of_the_next_epoch(
    asked: int, answer: tuple[int, int]
) -> None:
    assert epochs((2, 5), (4, 9), (7, 12)).end_offset_for(asked, 20) == answer


def test_epoch_cache_without_entries_returns_no_end_offset() -> None:
    assert epochs().end_offset_for(0, 10) == (-1, -1)
    assert epochs().latest == -1
    assert epochs().epoch_of(5) == -1


def test_epoch_of_an_offset_is_the_latest_that_starts_at_or_below_it() -> None:
    cache = epochs((2, 5), (4, 9))
    assert [cache.epoch_of(offset) for offset in (4, 5, 8, 9, 100)] == [-1, 2, 2, 4, 4]


def test_epoch_without_a_record_is_replaced_by_a_later_epoch_at_the_same_offset() -> None:
    cache = epochs((1, 0), (2, 10))
    cache.assign(3, 10)
    assert cache.entries == [(1, 0), (3, 10)]


def test_latest_epoch_keeps_its_start_offset_unless_assigned_at_a_lower_offset() -> None:
    cache = epochs((1, 0), (2, 10))
    cache.assign(2, 15)
    assert cache.entries == [(1, 0), (2, 10)]
    cache.assign(2, 8)
    assert cache.entries == [(1, 0), (2, 8)]


def test_a_lower_epoch_or_offset_removes_the_entries_that_contradict_it() -> None:
    cache = epochs((1, 0), (3, 10), (5, 20))
    cache.assign(4, 15)
    assert cache.entries == [(1, 0), (3, 10), (4, 15)]
    assert cache.latest == 4


@pytest.mark.row("R37")
def test_truncation_from_the_end_removes_epochs_that_begin_at_or_above_the_offset() -> None:
    cache = epochs((1, 0), (3, 10), (5, 20))
    cache.truncate_from_end(10)
    assert cache.entries == [(1, 0)]
    assert cache.latest == 1
    cache.truncate_from_end(0)
    assert cache.latest == -1


@pytest.mark.row("R37")
def test_truncation_from_the_start_keeps_the_epoch_that_covers_the_start() -> None:
    cache = epochs((1, 0), (3, 10), (5, 20))
    cache.truncate_from_start(15)
    assert cache.entries == [(3, 15), (5, 20)]
    cache.truncate_from_start(15)
    assert cache.entries == [(3, 15), (5, 20)]
    cache.truncate_from_start(20)
    assert cache.entries == [(5, 20)]


@pytest.mark.parametrize(
    "data",
    [b"", b"0", b"0\n", b"1\n0\n", b"0\n2\n1 0\n", b"0\n1\n1 0", b"0\nx\n", b"0\n1\n1\n", b"0\n2\n3 0\n2 5\n", b"\xff",
     b"0\n1\n+1 0\n", b"0\n1\n1_0 0\n", b"0\n1\n1 00\n", b"0\n1\n2147483648 0\n"],
)  # fmt: skip
def test_epoch_file_whose_entries_do_not_increase_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        decode(data)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 100)), max_size=20))
@settings(max_examples=200, deadline=None)
def test_epochs_and_offsets_increase_after_random_assignments(
    assignments: list[tuple[int, int]],
) -> None:
    storage = MemoryStorage()
    cache = LeaderEpochs(storage, PATH, [])
    for epoch, start in assignments:
        cache.assign(epoch, start)
        assert cache.latest == epoch
        assert decode(encode(cache.entries)) == cache.entries
        assert decode(storage.read(PATH)) == cache.entries


def test_first_epoch_of_an_empty_log_has_no_file_until_another_epoch_follows() -> None:
    storage = MemoryStorage()
    cache = LeaderEpochs(storage, PATH, [], is_new=True)
    cache.assign(0, 0)
    cache.assign(2, 0)
    assert (cache.entries, cache.latest) == ([(2, 0)], 2)
    assert not storage.exists(PATH)
    cache.assign(3, 5)
    assert storage.read(PATH) == b"0\n2\n2 0\n3 5\n"
    cache.clear()
    assert storage.read(PATH) == b"0\n0\n"


def test_epoch_file_of_a_new_log_is_written_by_ensure_file() -> None:
    storage = MemoryStorage()
    cache = LeaderEpochs(storage, PATH, [], is_new=True)
    cache.sync()
    assert not storage.exists(PATH)
    cache.assign(4, 0)
    cache.ensure_file()
    assert storage.read(PATH) == b"0\n1\n4 0\n"
    cache.sync()
    assert storage.synced == [PATH]


@pytest.mark.parametrize("catch_up", ["catch_up", "ensure_file", "sync"])
def test_change_without_a_free_descriptor_is_written_later(catch_up: str) -> None:
    storage = MemoryStorage()
    storage.make_directories("/d")
    cache = LeaderEpochs(storage, "/d/leader-epoch-checkpoint", [], is_new=True)
    cache.assign(1, 5)
    few = FewDescriptors(storage)
    few.fail_all()
    cache.assign(2, 9)
    assert (cache.latest, cache.entries) == (2, [(1, 5), (2, 9)])
    few.heal()
    assert decode(storage.read(cache.path)) == [(1, 5)]
    getattr(cache, catch_up)()
    assert decode(storage.read(cache.path)) == [(1, 5), (2, 9)]


def test_checkpoint_of_a_log_writes_epochs_that_found_no_descriptor() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    produce(log, 2, epoch=1)
    few = FewDescriptors(storage)
    few.fail_all()
    produce(log, 2, epoch=2)
    few.heal()
    log.checkpoint_indexes()
    assert decode(storage.read(log.epochs.path)) == [(1, 0), (2, 2)]
