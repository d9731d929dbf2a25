"""A group consumer alone in its group: positions, commits, errors of its coordinator, callbacks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from support.memory_transport import MemoryTransport
from support.stub_groups import StubGroups
from support.until import until

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.client import (
    Client,
    GroupConsumer,
    GroupSettings,
    NoOffset,
    OffsetAndMetadata,
    Record,
)
from minikafka.client.groups.membership import Membership
from minikafka.client.groups.protocol import decode_subscription
from minikafka.record.batch import build
from minikafka.wire import versions

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
EARLIEST = GroupSettings(
    auto_offset_reset="earliest", heartbeat_interval_ms=20, auto_commit_interval_ms=30
)
MANUAL = GroupSettings(
    auto_offset_reset="earliest", enable_auto_commit=False, heartbeat_interval_ms=20
)


class Calls(list[tuple[str, list[TopicPartition]]]):
    """A list of the rebalance callbacks that were called, as (name, partitions)."""

    def hooks(self) -> dict[str, Callable[[list[TopicPartition]], Awaitable[None] | None]]:
        async def later(partitions: list[TopicPartition]) -> None:
            self.append(("revoked", partitions))

        return {
            "on_assigned": lambda partitions: self.append(("assigned", partitions)),
            "on_revoked": later,
            "on_lost": lambda partitions: self.append(("lost", partitions)),
        }


@pytest.fixture
async def cluster() -> AsyncIterator[StubGroups]:
    cluster = StubGroups(MemoryTransport())
    await cluster.start()
    cluster.create("t", [1, 2])
    for partition in (0, 1):
        fill(cluster, partition, 5)
    yield cluster
    await cluster.close()


@pytest.fixture
async def client(cluster: StubGroups) -> AsyncIterator[Client]:
    async with Client(
        cluster.bootstrap,
        transport=cluster.transport,
        request_timeout_ms=30_000,
        api_timeout_ms=60_000,
    ) as client:
        yield client


def fill(cluster: StubGroups, partition: int, count: int) -> None:
    for _ in range(count):
        log = cluster.topics["t"][partition]
        log.append(build([Record(timestamp=1, value=b"%d" % log.end)]))


async def take(consumer: GroupConsumer, count: int) -> list[tuple[int, int]]:
    """Read the next `count` records; return their (partition, offset)."""
    async with asyncio.timeout(60):
        return [(r.partition, r.offset) for r in [await anext(consumer) for _ in range(count)]]


async def test_consumer_reads_all_assigned_partitions_in_order(
    cluster: StubGroups, client: Client
) -> None:
    async with client.group_consumer("g", ["t"], EARLIEST) as consumer:
        found = await take(consumer, 10)
    assert sorted(found) == [(p, o) for p in (0, 1) for o in range(5)]
    assert [o for p, o in found if p == 0] == list(range(5))
    assert cluster.committed == {T0: OffsetAndMetadata(5), T1: OffsetAndMetadata(5)}
    assert cluster.left == ["m-1"]


async def test_consumer_begins_at_the_committed_offsets(
    cluster: StubGroups, client: Client
) -> None:
    cluster.committed = {T0: OffsetAndMetadata(4), T1: OffsetAndMetadata(3)}
    async with client.group_consumer("g", ["t"], EARLIEST) as consumer:
        assert sorted(await take(consumer, 3)) == [(0, 4), (1, 3), (1, 4)]
        assert await consumer.committed(T0, T1) == {
            T0: OffsetAndMetadata(4),
            T1: OffsetAndMetadata(3),
        }


async def test_consumer_is_not_assigned_before_it_has_its_partitions(
    cluster: StubGroups, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, bool]] = []
    joined, synced = Membership.joined, Membership.synced

    def look() -> None:
        seen.append((consumer.generation, consumer.is_assigned))

    monkeypatch.setattr(Membership, "joined", lambda *words: (joined(*words), look()))
    monkeypatch.setattr(Membership, "synced", lambda *words: (synced(*words), look()))
    async with client.group_consumer("g", ["t"], EARLIEST) as consumer:
        assert not consumer.is_assigned
        await take(consumer, 1)
        assert consumer.is_assigned
        assert seen == [(consumer.generation, False)] * 2


async def test_consumer_begins_at_the_end_without_a_committed_offset(
    cluster: StubGroups, client: Client
) -> None:
    async with client.group_consumer("g", ["t"]) as consumer:
        waiting = asyncio.ensure_future(take(consumer, 1))
        await until(lambda: len(consumer.assignment()) == 2)
        assert [await consumer.position(tp) for tp in (T0, T1)] == [5, 5]
        assert not waiting.done()
        fill(cluster, 1, 1)
        assert await waiting == [(1, 5)]


async def test_nooffset_error_is_raised_without_committed_offset_and_reset_policy(
    cluster: StubGroups, client: Client
) -> None:
    settings = GroupSettings(auto_offset_reset="none")
    with pytest.raises(NoOffset, match=r"t-\d: it has no committed offset"):
        async with client.group_consumer("g", ["t"], settings) as consumer:
            await anext(consumer)


async def test_offset_outside_of_the_log_is_reset(cluster: StubGroups, client: Client) -> None:
    cluster.committed = {T0: OffsetAndMetadata(77), T1: OffsetAndMetadata(5)}
    async with client.group_consumer("g", ["t"], EARLIEST) as consumer:
        assert await take(consumer, 2) == [(0, 0), (0, 1)]


def append(cluster: StubGroups, epoch: int) -> None:
    log = cluster.topics["t"][0]
    log.append(build([Record(timestamp=1, value=b"v")], leader_epoch=epoch))


async def test_commit_names_the_leader_epoch_of_the_last_record(
    cluster: StubGroups, client: Client
) -> None:
    cluster.topics["t"].pop()
    append(cluster, 3)
    async with client.group_consumer("g", ["t"], EARLIEST) as consumer:
        await take(consumer, 6)
        await consumer.commit()
        assert cluster.committed == {T0: OffsetAndMetadata(6)}
        assert cluster.epochs == {T0: 3}


async def test_commit_up_to_a_failed_record_has_the_epoch_of_the_record_before_it(
    cluster: StubGroups, client: Client
) -> None:
    cluster.topics["t"].pop()
    append(cluster, 3)
    append(cluster, 4)

    async def work() -> None:
        async with client.group_consumer("g", ["t"], EARLIEST) as consumer:
            await take(consumer, 7)
            raise RuntimeError("work")

    with pytest.raises(RuntimeError, match="work"):
        await work()
    assert cluster.committed == {T0: OffsetAndMetadata(6)}
    assert cluster.epochs == {T0: 3}


async def test_record_being_processed_is_not_committed_when_the_application_raises(
    cluster: StubGroups, client: Client
) -> None:
    cluster.topics["t"].pop()

    async def work() -> None:
        async with client.group_consumer("g", ["t"], EARLIEST) as consumer:
            await take(consumer, 3)
            raise RuntimeError("of the application")

    with pytest.raises(RuntimeError, match="of the application"):
        await work()
    assert cluster.committed == {T0: OffsetAndMetadata(2)}
    assert cluster.left == ["m-1"]


async def test_processed_records_are_committed_at_the_auto_commit_interval(
    cluster: StubGroups, client: Client
) -> None:
    cluster.topics["t"].pop()
    async with client.group_consumer("g", ["t"], EARLIEST) as consumer:
        await take(consumer, 5)
        waiting = asyncio.ensure_future(anext(consumer))
        await until(lambda: cluster.committed.get(T0) == OffsetAndMetadata(5))
        commits = len(cluster.commits)
        heartbeats = len(cluster.asked(versions.HEARTBEAT))
        await until(lambda: len(cluster.asked(versions.HEARTBEAT)) > heartbeats + 4)
        assert len(cluster.commits) == commits, "an unchanged offset is not committed again"
        waiting.cancel()


async def test_explicit_commits_are_sent_in_order_with_the_offsets_they_name(
    cluster: StubGroups, client: Client
) -> None:
    async with client.group_consumer("g", ["t"], MANUAL) as consumer:
        await take(consumer, 10)
        assert cluster.commits == []
        await consumer.commit({T0: 2, T1: OffsetAndMetadata(3, "note")})
        assert cluster.committed == {T0: OffsetAndMetadata(2), T1: OffsetAndMetadata(3, "note")}
        await consumer.commit()
        done: list[KafkaError | None] = []
        consumer.commit_async({T0: 1}, done.append)
        consumer.commit_async({T0: 4}, done.append)
        await until(lambda: len(done) == 2)
    assert done == [None, None]
    assert [commit[T0] for commit in cluster.commits] == [2, 5, 1, 4]


async def test_consumer_reads_from_a_sought_position(cluster: StubGroups, client: Client) -> None:
    async with client.group_consumer("g", ["t"], MANUAL) as consumer:
        await take(consumer, 10)
        consumer.seek(T0, 3)
        assert await consumer.position(T0) == 3
        assert await take(consumer, 2) == [(0, 3), (0, 4)]
        consumer.seek_to_beginning(T1)
        assert await consumer.position(T1) == 0
        assert await take(consumer, 5) == [(1, offset) for offset in range(5)]
        consumer.seek_to_beginning()
        consumer.seek_to_end()
        assert [await consumer.position(tp) for tp in (T0, T1)] == [5, 5]
        with pytest.raises(ValueError, match="t-9 is not assigned"):
            consumer.seek(TopicPartition("t", 9), 0)
        with pytest.raises(ValueError, match="must not be negative"):
            consumer.seek(T0, -1)


async def test_paused_partition_returns_nothing_until_it_is_resumed(
    cluster: StubGroups, client: Client
) -> None:
    async with client.group_consumer("g", ["t"], MANUAL) as consumer:
        first = (await take(consumer, 1))[0]
        paused, other = (T0, T1) if first[0] == 0 else (T1, T0)
        consumer.pause(paused)
        assert consumer.paused() == {paused}
        assert await take(consumer, 5) == [(other.partition, offset) for offset in range(5)]
        waiting = asyncio.ensure_future(take(consumer, 4))
        fill(cluster, other.partition, 1)
        consumer.resume(paused)
        assert (paused.partition, 1) in await waiting


@pytest.mark.parametrize(
    ("api", "code"),
    [
        (versions.FIND_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (versions.JOIN_GROUP, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (versions.JOIN_GROUP, ErrorCode.NOT_COORDINATOR),
        (versions.JOIN_GROUP, ErrorCode.UNKNOWN_MEMBER_ID),
        (versions.SYNC_GROUP, ErrorCode.REBALANCE_IN_PROGRESS),
        (versions.SYNC_GROUP, ErrorCode.NOT_COORDINATOR),
        (versions.OFFSET_FETCH, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (versions.OFFSET_FETCH, ErrorCode.UNSTABLE_OFFSET_COMMIT),
        (versions.OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (versions.OFFSET_COMMIT, ErrorCode.NOT_COORDINATOR),
    ],
)
async def test_temporary_coordinator_error_only_delays_the_consumer(
    cluster: StubGroups, client: Client, api: int, code: ErrorCode
) -> None:
    cluster.failures[api] += [code, code]
    async with client.group_consumer("g", ["t"], MANUAL) as consumer:
        assert len(set(await take(consumer, 10))) == 10
        await consumer.commit()
    assert cluster.committed == {T0: OffsetAndMetadata(5), T1: OffsetAndMetadata(5)}
    assert not cluster.failures[api]


@pytest.mark.parametrize(
    ("api", "code"),
    [
        (versions.FIND_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (versions.JOIN_GROUP, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
async def test_group_that_cannot_be_joined_for_some_time_is_logged_as_a_warning(
    cluster: StubGroups,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    api: int,
    code: ErrorCode,
) -> None:
    monkeypatch.setattr("minikafka.client.groups.member.WARN_AFTER_MS", 150)
    cluster.failures[api] += [code] * 5
    async with client.group_consumer("g", ["t"], MANUAL) as consumer:
        await take(consumer, 1)
    (warning,) = caplog.messages
    assert warning.startswith("group g cannot be joined yet: ")
    assert code.name in warning


@pytest.mark.parametrize("code", [ErrorCode.REBALANCE_IN_PROGRESS])
async def test_rebalance_revokes_all_partitions_and_assigns_them_again(
    cluster: StubGroups, client: Client, code: ErrorCode
) -> None:
    calls = Calls()
    async with client.group_consumer("g", ["t"], EARLIEST, **calls.hooks()) as consumer:
        await take(consumer, 10)
        cluster.failures[versions.HEARTBEAT].append(code)
        waiting = asyncio.ensure_future(take(consumer, 1))
        await until(lambda: len(calls) == 3)
        assert cluster.committed == {T0: OffsetAndMetadata(5), T1: OffsetAndMetadata(5)}
        fill(cluster, 0, 1)
        assert await waiting == [(0, 5)]
    both = [T0, T1]
    assert calls == [("assigned", both), ("revoked", both), ("assigned", both), ("revoked", both)]
    assert cluster.reasons == ["the consumer starts", "Heartbeat failed with REBALANCE_IN_PROGRESS"]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
async def test_member_that_was_removed_loses_its_partitions_and_joins_again(
    cluster: StubGroups, client: Client, code: ErrorCode
) -> None:
    calls = Calls()
    async with client.group_consumer("g", ["t"], MANUAL, **calls.hooks()) as consumer:
        await take(consumer, 10)
        cluster.failures[versions.HEARTBEAT].append(code)
        await until(lambda: consumer.generation == -1)
        with pytest.raises(KafkaError, match="the consumer is not in the group"):
            await consumer.commit()
        assert len(await take(consumer, 10)) == 10
    both = [T0, T1]
    assert calls == [("assigned", both), ("lost", both), ("assigned", both), ("revoked", both)]
    assert cluster.commits == []


async def test_cooperative_member_keeps_its_partitions_during_a_rebalance(
    cluster: StubGroups, client: Client
) -> None:
    calls = Calls()
    settings = GroupSettings(
        auto_offset_reset="earliest", assignors=("cooperative-sticky",), heartbeat_interval_ms=20
    )
    async with client.group_consumer("g", ["t"], settings, **calls.hooks()) as consumer:
        await take(consumer, 10)
        cluster.failures[versions.HEARTBEAT].append(ErrorCode.REBALANCE_IN_PROGRESS)
        waiting = asyncio.ensure_future(take(consumer, 1))
        await until(lambda: len(calls) == 2)
        fill(cluster, 0, 1)
        assert await waiting == [(0, 5)]
        assert calls == [("assigned", [T0, T1]), ("assigned", [])]
    owned = [decode_subscription(data) for data in cluster.subscriptions]
    assert [(s.owned, s.generation) for s in owned] == [((), -1), ((T0, T1), 1)]


async def test_commit_of_a_member_that_was_removed_fails(
    cluster: StubGroups, client: Client
) -> None:
    async with client.group_consumer("g", ["t"], MANUAL) as consumer:
        await take(consumer, 1)
        cluster.failures[versions.OFFSET_COMMIT].append(ErrorCode.ILLEGAL_GENERATION)
        with pytest.raises(KafkaError) as caught:
            await consumer.commit()
        assert caught.value.code is ErrorCode.ILLEGAL_GENERATION
        assert len(await take(consumer, 10)) == 10, "it joins again and starts over"


async def test_asynchronous_commit_is_not_retried(cluster: StubGroups, client: Client) -> None:
    done: list[KafkaError | None] = []
    async with client.group_consumer("g", ["t"], MANUAL) as consumer:
        await take(consumer, 1)
        cluster.failures[versions.OFFSET_COMMIT].append(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        consumer.commit_async(on_done=done.append)
        await until(lambda: bool(done))
    assert done[0] is not None
    assert done[0].code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_consumer_finds_the_coordinator_again_after_it_moved_or_died(
    cluster: StubGroups, client: Client
) -> None:
    async with client.group_consumer("g", ["t"], MANUAL) as consumer:
        await take(consumer, 10)
        cluster.coordinator = 2
        await consumer.commit()
        cluster.coordinator = 3
        await cluster.kill(2)
        cluster.lead("t", 1, 3)
        await consumer.commit({T0: 1})
        generation = consumer.generation
        heartbeats = len(cluster.asked(versions.HEARTBEAT))
        await until(lambda: len(cluster.asked(versions.HEARTBEAT)) > heartbeats + 3)
        assert consumer.generation == generation == 1, "the member survives its coordinator"


async def test_fenced_static_member_raises_the_error_and_does_not_leave(
    cluster: StubGroups, client: Client
) -> None:
    settings = GroupSettings(group_instance_id="i", heartbeat_interval_ms=20)
    cluster.failures[versions.HEARTBEAT].append(ErrorCode.FENCED_INSTANCE_ID)
    with pytest.raises(KafkaError) as caught:
        async with client.group_consumer("g", ["t"], settings) as consumer:
            await take(consumer, 1)
    assert caught.value.code is ErrorCode.FENCED_INSTANCE_ID
    assert cluster.left == [], "a static member does not leave"


async def test_consumer_without_a_common_assignor_raises_inconsistent_group_protocol(
    cluster: StubGroups, client: Client
) -> None:
    cluster.failures[versions.JOIN_GROUP].append(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    with pytest.raises(KafkaError) as caught:
        async with client.group_consumer("g", ["t"]) as consumer:
            await anext(consumer)
    assert caught.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


async def test_member_of_a_too_slow_application_leaves_and_joins_again(
    cluster: StubGroups, client: Client
) -> None:
    calls = Calls()
    settings = GroupSettings(
        auto_offset_reset="earliest",
        heartbeat_interval_ms=10,
        max_poll_interval_ms=500,
        enable_auto_commit=False,
    )
    async with client.group_consumer("g", ["t"], settings, **calls.hooks()) as consumer:
        await take(consumer, 1)
        await until(lambda: cluster.left == ["m-1"])
        await take(consumer, 1)
    assert [name for name, _ in calls] == ["assigned", "lost", "assigned", "revoked"]
    assert "max.poll.interval.ms" in cluster.reasons[1]


async def test_waiting_for_a_record_does_not_count_as_slow_processing(
    cluster: StubGroups, client: Client
) -> None:
    settings = GroupSettings(heartbeat_interval_ms=10, max_poll_interval_ms=50)
    async with client.group_consumer("g", ["t"], settings) as consumer:
        waiting = asyncio.ensure_future(take(consumer, 1))
        await until(lambda: len(cluster.asked(versions.HEARTBEAT)) > 12)
        fill(cluster, 0, 1)
        assert await waiting == [(0, 5)]
    assert len(cluster.reasons) == 1


async def test_pattern_subscribes_topics_as_they_appear(
    cluster: StubGroups, client: Client
) -> None:
    cluster.create("other", [1])
    cluster.create("__consumer_offsets", [1])
    settings = GroupSettings(auto_offset_reset="earliest", metadata_max_age_ms=30)
    async with client.group_consumer("g", re.compile(r"t\d*|__.*"), settings) as consumer:
        await take(consumer, 10)
        assert consumer.assignment() == {T0, T1}
        cluster.create("t2", [1])
        waiting = asyncio.ensure_future(take(consumer, 1))
        await until(lambda: len(consumer.assignment()) == 3)
        cluster.topics["t2"][0].append(build([Record(timestamp=1)]))
        assert await waiting == [(0, 0)]


async def test_group_leader_assigns_partitions_that_were_added_to_a_topic(
    cluster: StubGroups, client: Client
) -> None:
    settings = GroupSettings(auto_offset_reset="earliest", metadata_max_age_ms=30)
    async with client.group_consumer("g", ["t"], settings) as consumer:
        await take(consumer, 10)
        cluster.topics["t"].append(type(cluster.topics["t"][0])(1))
        fill(cluster, 2, 1)
        assert await take(consumer, 1) == [(2, 0)]
        assert cluster.reasons[1] == "the partitions of a topic have changed"


async def test_partition_without_a_leader_does_not_delay_other_partitions(
    cluster: StubGroups, client: Client
) -> None:
    cluster.lead("t", 1, -1)
    async with client.group_consumer("g", ["t"], MANUAL) as consumer:
        assert await take(consumer, 5) == [(0, offset) for offset in range(5)]
        cluster.lead("t", 1, 3)
        assert await take(consumer, 5) == [(1, offset) for offset in range(5)]


async def test_subscribed_topic_is_read_when_it_is_created(
    cluster: StubGroups, client: Client
) -> None:
    settings = GroupSettings(auto_offset_reset="earliest", metadata_max_age_ms=30)
    async with client.group_consumer("g", ["t", "later"], settings) as consumer:
        await take(consumer, 10)
        cluster.create("later", [1])
        cluster.topics["later"][0].append(build([Record(timestamp=1)]))
        assert (await take(consumer, 1)) == [(0, 0)]


async def test_cancelled_wait_for_a_record_loses_no_record(
    cluster: StubGroups, client: Client
) -> None:
    found: list[Any] = []
    async with client.group_consumer("g", ["t"], MANUAL) as consumer:
        for delay in range(200):
            try:
                async with asyncio.timeout(delay / 1000):
                    found.append(await anext(consumer))
            except TimeoutError:
                continue
            if len(found) == 10:
                break
    assert sorted((r.partition, r.offset) for r in found) == [
        (p, o) for p in (0, 1) for o in range(5)
    ]


async def test_changed_subscription_gives_up_the_former_topic(
    cluster: StubGroups, client: Client
) -> None:
    calls = Calls()
    cluster.create("u", [1])
    cluster.topics["u"][0].append(build([Record(timestamp=1)]))
    settings = GroupSettings(auto_offset_reset="earliest", assignors=("cooperative-sticky",))
    async with client.group_consumer("g", ["t"], settings, **calls.hooks()) as consumer:
        await take(consumer, 10)
        consumer.subscribe(["u"])
        assert await take(consumer, 1) == [(0, 0)]
        assert consumer.assignment() == {TopicPartition("u", 0)}
    assert calls[1] == ("revoked", [T0, T1])


async def test_closed_consumer_ends_its_iteration(cluster: StubGroups, client: Client) -> None:
    consumer = client.group_consumer("g", ["t"], EARLIEST)
    reading = asyncio.ensure_future(take_all(consumer))
    await until(lambda: bool(cluster.reasons) and consumer.generation == 1)
    await consumer.close()
    await consumer.close()
    assert await reading <= 10


async def take_all(consumer: GroupConsumer) -> int:
    return len([record async for record in consumer])
