"""The follower's fetch state machine on its own: what it makes of an answer and of its disk."""

from __future__ import annotations

from support.replication import KEY, Replicas

from minikafka.replication.follower import STOPPED
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
