"""The follower's fetch state machine on its own: what it makes of an answer and of its disk."""

from __future__ import annotations

import pytest
from support.replication import KEY, Replicas

from minikafka.replication.follower import STOPPED, reconcile
from minikafka.replication.partition import Partition


def test_a_disk_that_cannot_note_the_leaders_new_start_offset_goes_offline() -> None:
    """Or the error would end the connection, and every later one, of all that is fetched from that leader."""
    world = Replicas((0, 1))
    world.elect(0)
    for _ in range(3):
        world.produce(0, b"x")
    world.sync(0, 1)
    failed: list[Partition] = []
    machine, partition = world[1].follower, world[1].partition
    machine.on_storage_failed = lambda broken, _: failed.append(broken)
    world[1].storage.fail("/d/t-0")
    machine.on_partition(KEY, 0, 3, 2, (bytearray(), memoryview(b""), 0, 0), None)
    assert failed == [partition]
    assert machine.followed[KEY].state == STOPPED


def test_an_epoch_that_was_led_without_a_record_is_forgotten_by_a_leader_that_follows() -> None:
    """Else its next fetch would name it, and diverge from a leader that never heard of it, for ever."""
    world = Replicas((0, 1))
    world.elect(0)
    world.produce(0, b"a")
    world.sync(0, 1)
    world.elect(1, tell=(1,))
    world.elect(0)
    world.produce(0, b"b")
    world.sync(0, 1)
    assert world[1].log.epochs.entries == [(0, 0), (2, 1)]
    assert world[1].entries() == world[0].entries()


def follower_of_epochs(world: Replicas) -> Partition:
    """Offsets 0 and 1 of epoch 0, 2 and 3 of epoch 2, the first of them committed."""
    world.elect(0)
    for value in (b"a", b"b"):
        world.produce(0, value)
    world.fetch(1, 0)
    world.elect(1, tell=())
    world.elect(0)
    for value in (b"c", b"d"):
        world.produce(0, value)
    world.fetch(1, 0)
    partition = world[1].partition
    partition.high_watermark = 1
    assert partition.log.epochs.entries == [(0, 0), (2, 2)]
    assert partition.log.log_end_offset == 4
    return partition


@pytest.mark.parametrize(
    ("answer", "agreed", "end", "epochs"),
    [
        pytest.param(
            (2, 3), True, 3, [(0, 0), (2, 2)], id="the epoch asked for ends earlier there"
        ),
        pytest.param((2, 9), True, 4, [(0, 0), (2, 2)], id="it goes on there"),
        pytest.param((0, 1), True, 1, [(0, 0)], id="a smaller epoch, which ends earlier there"),
        pytest.param((0, 9), True, 2, [(0, 0)], id="a smaller epoch, which ends earlier here"),
        pytest.param((1, 9), False, 2, [(0, 0)], id="one that was never seen here: ask again"),
        pytest.param((-1, -1), True, 1, [(0, 0)], id="none: to the high watermark"),
    ],
)
def test_a_follower_cuts_its_log_to_where_it_agrees_with_the_leaders(
    answer: tuple[int, int], agreed: bool, end: int, epochs: list[tuple[int, int]]
) -> None:
    partition = follower_of_epochs(Replicas((0, 1)))
    assert reconcile(partition, *answer) is agreed
    assert partition.log.log_end_offset == end
    assert partition.log.epochs.entries == epochs


def test_a_log_that_is_begun_anew_has_its_high_watermark_at_its_start() -> None:
    partition = follower_of_epochs(Replicas((0, 1)))
    partition.truncate_fully_and_start_at(7)
    assert (partition.high_watermark, partition.log.log_end_offset) == (7, 7)
