"""Groups of consumers, and what does not get on within the limit, in histories written by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minikafka.base.model import TopicPartition
from minikafka.checks.histories import UNKNOWN, Event, Recorder, digest_of, parse
from minikafka.checks.isolation.logs import COMMITTED, RECORD, Stored
from minikafka.checks.isolation.stuck import StuckLimit
from minikafka.checks.isolation.verdict import check

TP = TopicPartition("t", 0)
LIMIT = 10.0


class World:
    """Clients with a common clock, and one partition."""

    def __init__(self) -> None:
        self.time = 1_700_000_000.0
        self.lines: list[str] = []
        self.log: list[Stored] = []

    def client(self, name: str) -> Recorder:
        return Recorder(name, None, self.lines.append, lambda: self.time)

    def append(self, value: bytes, producer: int = -1) -> int:
        offset, stamp = len(self.log), int(self.time * 1000)
        entry = Stored(offset, RECORD, digest_of(value), producer, 0, producer >= 0, stamp)
        self.log.append(entry)
        return offset

    def write(self, client: Recorder, value: bytes) -> None:
        number = client.write("t", value, 0)
        client.ended(number, offset=self.append(value))

    def receive(self, client: Recorder, offset: int, value: bytes) -> None:
        client.read("t", 0, offset, value, None, "g")

    def commit(self, client: Recorder, offset: int) -> None:
        client.ended(client.offsets("g", "t", 0, offset))

    def found(self, committed: int | None = None) -> list[str]:
        offsets = {} if committed is None else {("group g", TP): committed}
        limit = StuckLimit(LIMIT, self.time, offsets)
        return list(check(self.events(), {TP: {1: self.log}}, limit=limit).counts)

    def events(self) -> list[Event]:
        return list(parse(self.lines))


@pytest.fixture
def world() -> World:
    world = World()
    producer = world.client("p")
    for value in (b"a", b"b", b"c"):
        world.write(producer, value)
    return world


def test_members_of_a_group_share_the_records(world: World) -> None:
    one, two = world.client("one"), world.client("two")
    world.receive(one, 0, b"a")
    world.commit(one, 1)
    world.receive(two, 1, b"b")
    world.receive(one, 2, b"c")
    assert world.found() == []


def test_record_that_no_member_of_a_group_received_was_skipped(world: World) -> None:
    one, two = world.client("one"), world.client("two")
    world.receive(one, 0, b"a")
    world.receive(two, 2, b"c")
    assert world.found() == ["skipped_read"]


def test_commit_of_a_record_that_no_member_received_skips_it(world: World) -> None:
    one = world.client("one")
    world.receive(one, 0, b"a")
    world.commit(one, 2)
    assert world.found() == ["skipped_read"]


def test_seek_of_a_member_skips_records_by_its_own_wish(world: World) -> None:
    one = world.client("one")
    world.receive(one, 0, b"a")
    one.seek("t", 0, 2, "g")
    world.receive(one, 2, b"c")
    assert world.found() == []


def test_record_may_come_again_until_it_is_committed(world: World) -> None:
    one, two = world.client("one"), world.client("two")
    world.receive(one, 0, b"a")
    world.receive(two, 0, b"a")
    assert world.found() == []
    world.time += 1
    world.commit(two, 1)
    world.time += 1
    world.receive(one, 0, b"a")
    assert world.found() == ["read_back"]


def test_offsets_of_a_transaction_count_once_it_is_committed(world: World) -> None:
    one = world.client("one")
    for end, again in ((one.abort, []), (one.commit, ["read_back"])):
        world.receive(one, 0, b"a")
        one.ended(one.begin())
        one.ended(one.offsets("g", "t", 0, 1))
        one.ended(end())
        world.time += 1
        world.receive(one, 0, b"a")
        assert world.found() == again


def unsent(world: World, client: Recorder) -> None:
    client.write("t", b"d", 0)


def uncommitted(world: World, client: Recorder) -> None:
    client.ended(client.begin())
    world.append(b"e", 7)
    client.ended(client.write("t", b"e", 0), offset=3)


def unended(world: World, client: Recorder) -> None:
    client.ended(client.begin())
    client.commit()


def unread(world: World, client: Recorder) -> None:
    client.assigned("t", None, 0, "g")


def unread_partition(world: World, client: Recorder) -> None:
    client.assigned("t", 0, 2)


@pytest.mark.parametrize("stop", [unsent, uncommitted, unended, unread, unread_partition])
def test_what_stands_still_is_stuck_at_the_limit(
    world: World, stop: Callable[[World, Recorder], None]
) -> None:
    stop(world, world.client("c"))
    world.time += LIMIT - 1
    assert world.found() in ([], ["behind_lso"])
    world.time += 1
    assert world.found() == ["stuck"]


def test_send_of_a_closed_client_is_stuck_at_once_unless_the_client_was_killed(
    world: World,
) -> None:
    client = world.client("c")
    unsent(world, client)
    assert world.found() == []
    client.closed()
    assert world.found() == ["stuck"]
    world.lines.pop()
    client.closed(UNKNOWN)
    world.time += LIMIT
    assert world.found() == []


def test_consumer_that_reads_on_or_is_closed_or_has_no_records_is_not_stuck(world: World) -> None:
    consumer = world.client("c")
    consumer.assigned("t", None, 0, "g")
    world.time += LIMIT
    for offset, value in enumerate((b"a", b"b")):
        world.receive(consumer, offset, value)
    world.time += LIMIT - 1
    assert world.found() == []
    world.time += 1
    assert world.found() == ["stuck"]
    assert world.found(committed=3) == []
    consumer.closed()
    assert world.found() == []


def test_consumer_that_begins_at_the_end_only_wants_later_records(world: World) -> None:
    world.time += 1
    world.client("c").assigned("t")
    world.time += LIMIT
    assert world.found() == []
    world.write(world.client("late"), b"d")
    world.time += LIMIT
    assert world.found() == ["stuck"]


def test_transaction_that_the_coordinator_ended_is_not_stuck(world: World) -> None:
    uncommitted(world, world.client("c"))
    world.log.append(Stored(4, COMMITTED, b"", 7, 0, True))
    world.time += LIMIT
    assert world.found() == ["aborted_read"]


def test_calls_at_the_same_time_have_no_order(world: World) -> None:
    client = world.client("c")
    first, second = client.write("t", b"x", 0), client.write("t", b"y", 0)
    client.returned(first)
    client.ended(second, offset=world.append(b"y"))
    client.ended(first, offset=world.append(b"x"))
    assert world.found() == []
    third = client.write("t", b"z", 0)
    fourth = client.write("t", b"w", 0)
    client.ended(fourth, offset=world.append(b"w"))
    client.ended(third, offset=world.append(b"z"))
    assert world.found() == ["reordered"]


def test_consumer_that_subscribes_again_can_be_stuck(world: World) -> None:
    consumer = world.client("c")
    unread(world, consumer)
    consumer.closed()
    unread(world, consumer)
    world.time += LIMIT
    assert world.found() == ["stuck"]


def test_equal_value_is_a_copy_only_with_the_same_key_and_if_it_is_not_older(world: World) -> None:
    client = world.client("c")
    world.append(b"x")
    world.log[-1] = world.log[-1]._replace(key=b"k")
    world.time += 60
    number = client.write("t", b"x", 0, b"k")
    client.ended(number, offset=world.append(b"x"))
    assert world.found() == ["invented"]
    world.append(b"x")
    world.log[-1] = world.log[-1]._replace(key=b"other")
    assert world.found() == ["invented"]
    world.log[-1] = world.log[-1]._replace(key=b"k")
    assert world.found() == ["duplicated", "invented"]


def test_record_behind_what_retention_has_removed_can_be_lost(world: World) -> None:
    client = world.client("c")
    client.ended(client.write("t", b"x", 0), offset=7)
    del world.log[:2]
    assert world.found() == ["lost"]
    client.ended(client.write("t", b"y", 0), offset=1)
    assert world.found() == ["lost"]
    world.lines[:] = world.lines[-2:]
    assert world.found() == ["invented"]


def test_empty_log_after_retention_has_lost_nothing_below_its_start(world: World) -> None:
    found = check(world.events(), {TP: {1: []}}, starts={TP: 3})
    assert found.ok
    assert list(check(world.events(), {TP: {1: []}}).counts) == ["lost"]
