"""The controller's three requests at a broker: their effects and refusals (R5-R8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from types import SimpleNamespace

import pytest
from support.brokers.endpoints import endpoints
from support.brokers.hosted import EPOCH, T0, T1, Hosted, batch, state

from minikafka.base.errors import ErrorCode, KafkaError, StaleSession
from minikafka.base.model import (
    EPOCH_DURING_DELETE,
    NO_EPOCH,
    NO_LEADER,
    Broker,
    ControllerRequest,
    LeaderAndIsrRequest,
    PartitionState,
    StopReplicaPartition,
    StopReplicaRequest,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.base.ports import Call
from minikafka.broker.rpc import messages
from minikafka.simulation.cluster import MemoryCluster
from minikafka.storage.replication.isr import Committed, PendingExpand, PendingShrink
from minikafka.zookeeper.nodes import layout


@pytest.fixture
async def hosted() -> AsyncIterator[Hosted]:
    async with MemoryCluster(1, replica_lag_time_max_ms=7_000) as cluster:
        yield Hosted(cluster)


@pytest.mark.row("R6")
async def test_requests_of_an_older_controller_are_refused(hosted: Hosted) -> None:
    assert await hosted.tell(state()) == [0]
    old = EPOCH - 1
    epoch = hosted.epoch
    for request in (
        LeaderAndIsrRequest(9, old, epoch, (state(epoch=9),), (), ()),
        StopReplicaRequest(9, old, epoch, (StopReplicaPartition(T0, -2, True),)),
        UpdateMetadataRequest(9, old, epoch, (), (), ()),
    ):
        answer = await hosted.handle(request)
        assert answer.error == ErrorCode.STALE_CONTROLLER_EPOCH
    assert hosted.replicas.partitions[T0].leader_epoch == 3
    assert hosted.broker.metadata.brokers


@pytest.mark.row("R6")
async def test_leader_and_isr_is_refused_when_a_newer_controller_sent_a_request_meanwhile(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = hosted.replicas.configs
    read = configs.read

    async def overtaken(topics: Iterable[str], *, latest: bool) -> None:
        newer = UpdateMetadataRequest(9, EPOCH + 1, hosted.epoch, (), (hosted.broker.info,), ())
        assert (await hosted.handle(newer)).error == 0
        await read(topics, latest=latest)

    monkeypatch.setattr(configs, "read", overtaken)
    told = LeaderAndIsrRequest(0, EPOCH, hosted.epoch, (state(),), (hosted.broker.info,), ())
    assert (await hosted.handle(told)).error == ErrorCode.STALE_CONTROLLER_EPOCH
    assert T0 not in hosted.replicas.partitions


@pytest.mark.row("R69")
async def test_replica_of_a_recreated_topic_starts_empty(
    hosted: Hosted,
) -> None:
    first, second = b"0123456789abcdef", b"another-topic-id"
    assert await hosted.tell(state(), topic_id=first) == [0]
    assert hosted.produce(T0, b"old") == 1
    assert await hosted.tell(state(epoch=0), topic_id=first) == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert await hosted.tell(state(epoch=0), topic_id=second) == [0]
    partition = hosted.replicas.partitions[T0]
    assert (partition.leader_epoch, partition.log.log_end_offset) == (0, 0)
    assert hosted.produce(T0, b"new") == 1
    assert await hosted.tell(state(epoch=1)) == [0]
    assert partition.log.log_end_offset == 1


async def test_leader_and_isr_is_refused_when_the_session_ends_while_settings_are_read(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def get_many(paths: list[str]) -> None:
        raise StaleSession("the session of generation 1 is over")

    monkeypatch.setattr(hosted.cluster.sessions[0], "get_many", get_many)
    request = LeaderAndIsrRequest(0, EPOCH, hosted.epoch, (state(),), (hosted.broker.info,), ())
    with pytest.raises(KafkaError, match="StaleSession the session of generation 1 is over"):
        await hosted.broker.on_call(Call(*messages.encode(request)))
    assert T0 not in hosted.replicas.partitions


@pytest.mark.row("R5", "T20")
async def test_requests_to_an_earlier_registration_of_the_broker_are_refused(
    hosted: Hosted,
) -> None:
    assert await hosted.tell(state()) == [0]
    stale = hosted.epoch - 1
    for request in (
        LeaderAndIsrRequest(0, EPOCH, stale, (state(epoch=9),), (), ()),
        StopReplicaRequest(0, EPOCH, stale, (StopReplicaPartition(T0, -2, True),)),
        UpdateMetadataRequest(0, EPOCH, stale, (), (), ()),
    ):
        assert (await hosted.handle(request)).error == ErrorCode.STALE_BROKER_EPOCH
    assert hosted.replicas.partitions[T0].leader_epoch == 3
    later = LeaderAndIsrRequest(0, EPOCH, hosted.epoch + 7, (state(epoch=9),), (), ())
    assert (await hosted.handle(later)).error == 0, "a later incarnation than it knows of yet"


@pytest.mark.row("R7", "T5")
async def test_leader_and_isr_with_an_equal_or_lower_leader_epoch_is_refused(
    hosted: Hosted,
) -> None:
    stale = ErrorCode.STALE_CONTROLLER_EPOCH
    assert await hosted.tell(state(), state(T1)) == [0, 0]
    assert await hosted.tell(state(leader=9, replicas=(0, 9)), state(T1, epoch=4)) == [stale, 0]
    assert await hosted.tell(state(epoch=2)) == [stale]
    partition = hosted.replicas.partitions[T0]
    assert (partition.is_leader, partition.leader_epoch, partition.replicas) == (True, 3, (0,))
    assert hosted.replicas.partitions[T1].leader_epoch == 4


@pytest.mark.row("K9", "I6")
async def test_stray_replicas_are_deleted_after_the_first_metadata_of_a_controller(
    hosted: Hosted,
) -> None:
    """The former controller died after the reassignment but before it sent the StopReplica request."""
    here = (state(leader=9, replicas=(0, 9)), state(T1, leader=9, replicas=(0, 9)))
    assert await hosted.tell(*here) == [0, 0]

    async def told(epoch: int, *states: PartitionState) -> set[TopicPartition]:
        """Send UpdateMetadata; return the partitions that the broker still hosts."""
        await hosted.handle(UpdateMetadataRequest(0, epoch, hosted.epoch, states, (), ()))
        return set(hosted.replicas.logs.logs)

    moved = state(leader=9, replicas=(9,))
    assert await told(EPOCH, *here) == {T0, T1}
    assert await told(EPOCH, moved) == {T0, T1}, "only the first names every partition"
    assert await told(EPOCH + 1, moved, here[1]) == {T1}


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(state(leader=NO_LEADER, replicas=(9,)), id="without a leader"),
        pytest.param(state(leader=9, replicas=(9,))._replace(isr=(9, 0)), id="in the ISR"),
        pytest.param(state(leader=9, replicas=(9,)), id="of another topic id"),
    ],
)
async def test_replica_that_may_be_the_only_copy_is_not_deleted_as_a_stray(
    hosted: Hosted, request: pytest.FixtureRequest, kept: PartitionState
) -> None:
    known, other = b"0123456789abcdef", b"another-topic-id"
    here = state(leader=9, replicas=(0, 9))
    assert await hosted.tell(here, topic_id=known) == [0]
    topic_id = other if request.node.callspec.id == "of another topic id" else known
    ids = (("t", topic_id),)
    await hosted.handle(UpdateMetadataRequest(0, EPOCH + 1, hosted.epoch, (kept,), (), ids))
    assert set(hosted.replicas.logs.logs) == {T0}


@pytest.mark.row("K9", "I6")
@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(state(leader=NO_LEADER, replicas=(9,)), id="without a leader"),
        pytest.param(state(leader=9, replicas=(9,))._replace(isr=(9, 0)), id="in the ISR"),
    ],
)
async def test_stray_replica_that_was_kept_is_deleted_once_another_replica_leads(
    hosted: Hosted, kept: PartitionState
) -> None:
    assert await hosted.tell(state(leader=9, replicas=(0, 9)), topic_id=b"0123456789abcdef") == [0]
    ids = (("t", b"0123456789abcdef"),)
    moved = state(leader=9, replicas=(9,))
    for states, hosts in (((kept,), {T0}), ((), {T0}), ((moved,), set())):
        request = UpdateMetadataRequest(0, EPOCH + 1, hosted.epoch, states, (), ids)
        await hosted.handle(request)
        assert set(hosted.replicas.logs.logs) == hosts


@pytest.mark.row("R8", "T19")
async def test_stop_replica_with_a_lower_leader_epoch_is_fenced(hosted: Hosted) -> None:
    assert await hosted.tell(state()) == [0]
    assert await hosted.stop(T0, 2, delete=True) == ErrorCode.FENCED_LEADER_EPOCH
    assert hosted.replicas.partitions[T0].is_leader
    assert await hosted.stop(T0, 3, delete=False) == 0
    assert not hosted.replicas.partitions[T0].is_leader


@pytest.mark.row("R8")
@pytest.mark.parametrize("sentinel", [EPOCH_DURING_DELETE, NO_EPOCH])
async def test_stop_replica_without_a_leader_epoch_is_carried_out(
    hosted: Hosted, sentinel: int
) -> None:
    assert await hosted.tell(state()) == [0]
    assert await hosted.stop(T0, sentinel, delete=True) == 0
    assert T0 not in hosted.replicas.partitions


@pytest.mark.row("J2", "C15")
async def test_stop_replica_keeps_the_log_unless_it_requests_deletion(hosted: Hosted) -> None:
    assert await hosted.tell(state()) == [0]
    assert hosted.produce(T0, b"m1") == 1
    storage = hosted.cluster.storages[0]
    assert await hosted.stop(T0, 3, delete=False) == 0
    assert storage.exists("/data/t-0/00000000000000000000.log")
    assert hosted.produce(T0, b"m2") == -int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert await hosted.stop(T0, 3, delete=True) == 0
    assert not storage.exists("/data/t-0/00000000000000000000.log")
    assert T0 not in hosted.replicas.logs.logs


@pytest.mark.row("R64")
async def test_deletion_of_a_replica_is_durable_when_it_is_answered(hosted: Hosted) -> None:
    """The controller then deletes the topic's nodes, and a replica that a power cut restores would be a stray."""
    assert await hosted.tell(state()) == [0]
    synced = hosted.cluster.storages[0].synced
    synced.clear()
    assert await hosted.stop(T0, 3, delete=True) == 0
    assert "/data" in synced


@pytest.mark.row("C14")
async def test_replica_is_not_hosted_when_the_broker_is_not_assigned(hosted: Hosted) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await hosted.tell(state(leader=7, replicas=(7, 8))) == [unknown]
    assert T0 not in hosted.replicas.partitions
    assert T0 not in hosted.replicas.logs.logs


@pytest.mark.row("C14", "B4")
async def test_restarted_replica_takes_the_checkpointed_high_watermark_up_to_the_log_end(
    hosted: Hosted,
) -> None:
    hosted.cluster.ensemble.put(layout.topic_path("t"), layout.encode_topic(None, {}))
    assert await hosted.tell(state()) == [0]
    assert hosted.produce(T0, b"m1", b"m2") == 2
    hosted.replicas.checkpoints.write_high_watermarks()
    storage = hosted.cluster.storages[0]
    text = storage.read("/data/replication-offset-checkpoint").decode()
    assert "t 0 2" in text
    await hosted.cluster.stop(0, controlled=False)
    for checkpointed, expected in ((1, 1), (99, 2)):
        changed = text.replace("t 0 2", f"t 0 {checkpointed}")
        storage.write_atomically("/data/replication-offset-checkpoint", changed.encode())
        hosted.broker = await hosted.cluster.start(0)
        following = state(leader=9, epoch=3 + checkpointed, replicas=(0, 9))
        assert await hosted.tell(following) == [0]
        assert hosted.replicas.partitions[T0].high_watermark == expected
        hosted.broker.replicas.partitions.clear()
        await hosted.cluster.stop(0, controlled=False)
    hosted.broker = await hosted.cluster.start(0)


@pytest.mark.row("C18", "C27")
async def test_replica_is_not_read_or_written_before_it_leads(hosted: Hosted) -> None:
    replicas = hosted.replicas
    assert replicas.error_for(T0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await hosted.tell(state(leader=9, replicas=(0, 9))) == [0]
    assert replicas.error_for(T0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert hosted.produce(T0, b"m1") == -int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert replicas.partitions[T0].log.log_end_offset == 0
    assert await hosted.tell(state(epoch=4)) == [0]
    assert replicas.error_for(T0) == 0
    assert hosted.produce(T0, b"m1") == 1


@pytest.mark.row("B1", "B2")
async def test_report_of_a_replica_has_its_role_and_offsets(hosted: Hosted) -> None:
    assert await hosted.tell(state(replicas=(0, 9)), state(T1)) == [0, 0]
    hosted.produce(T0, b"m1")
    hosted.produce(T1, b"m1", b"m2")
    shown, alone = hosted.broker.describe()["replicas"]
    assert (alone["log_end_offset"], alone["high_watermark"]) == (2, 2)
    assert shown["role"] == "leader"
    assert (shown["leader"], shown["leader_epoch"]) == (0, 3)
    assert (shown["replicas"], shown["isr"]) == ([0, 9], [0, 9])
    assert (shown["log_end_offset"], shown["high_watermark"]) == (1, 0)
    assert shown["directory"] == "/data/t-0"


@pytest.mark.row("C40")
async def test_replica_lag_limit_is_replica_lag_time_max_ms(hosted: Hosted) -> None:
    assert await hosted.tell(state()) == [0]
    assert hosted.replicas.partitions[T0].lag_max_ms == 7_000
    assert hosted.broker.config.replica_lag_time_max_ms == 7_000


@pytest.mark.row("C17", "X17")
async def test_becoming_leader_does_not_raise_the_high_watermark(hosted: Hosted) -> None:
    assert await hosted.tell(state(replicas=(0, 9))) == [0]
    hosted.produce(T0, b"m1")
    assert await hosted.tell(state(epoch=4, replicas=(0, 9))._replace(isr=(0, 9))) == [0]
    partition = hosted.replicas.partitions[T0]
    assert (partition.high_watermark, partition.log.log_end_offset) == (0, 1)


async def test_topics_missing_in_the_first_metadata_of_a_controller_are_removed(
    hosted: Hosted,
) -> None:
    """A topic may be deleted while this broker has no session and gets no requests."""
    here = state(leader=9, replicas=(9,))
    others = here._replace(tp=TopicPartition("other", 0))

    async def told(epoch: int, *states: PartitionState) -> set[str]:
        await hosted.handle(UpdateMetadataRequest(0, epoch, hosted.epoch, states, (), ()))
        return set(hosted.broker.metadata.topics)

    assert await told(EPOCH, here, others) == {"t", "other"}
    assert await told(EPOCH, others) == {"t", "other"}, "only the first names every partition"
    assert await told(EPOCH + 1, others) == {"other"}


async def test_settings_of_a_new_topic_are_read_after_a_sync_with_zookeeper(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    zookeeper = hosted.cluster.sessions[0]
    done: list[str] = []
    sync, get_many = zookeeper.sync, zookeeper.get_many

    async def noted_sync(path: str) -> None:
        done.append("sync")
        await sync(path)

    async def noted_read(paths: list[str]) -> object:
        done.append("read")
        return await get_many(paths)

    monkeypatch.setattr(zookeeper, "sync", noted_sync)
    monkeypatch.setattr(zookeeper, "get_many", noted_read)
    assert await hosted.tell(state()) == [0]
    assert done == ["sync", "read"]
    assert await hosted.tell(state(epoch=4)._replace(is_new=False)) == [0]
    assert done == ["sync", "read"]


async def test_settings_of_topics_no_longer_hosted_are_dropped(hosted: Hosted) -> None:
    other = TopicPartition("other", 0)
    assert await hosted.tell(state(), state(T1), state(other)) == [0, 0, 0]
    for tp, left in ((T0, ["other", "t"]), (T1, ["other"])):
        assert await hosted.stop(tp, 3, delete=True) == 0
        assert sorted(hosted.replicas.configs.topics) == left


async def test_dead_follower_outside_the_isr_does_not_hold_back_the_high_watermark(
    hosted: Hosted,
) -> None:
    both = (hosted.broker.info, Broker(9, endpoints("127.0.0.1", 9092, "127.0.0.1", 9093)))

    async def live(*brokers: Broker) -> None:
        await hosted.handle(UpdateMetadataRequest(0, EPOCH, hosted.epoch, (), brokers, ()))

    await live(*both)
    assert await hosted.tell(state(replicas=(0, 9))._replace(isr=(0,))) == [0]
    partition = hosted.replicas.partitions[T0]
    partition.record_follower_fetch(partition.followers[9], 0, hosted.broker.clock.now())
    hosted.produce(T0, b"m1")
    assert partition.high_watermark == 0, "9 may join at any moment"
    await live(both[0])
    assert partition.high_watermark == 1


async def test_caught_up_follower_is_proposed_for_the_isr_when_its_broker_appears(
    hosted: Hosted,
) -> None:
    follower = Broker(9, endpoints("127.0.0.1", 9092, "127.0.0.1", 9093))
    assert await hosted.tell(state(replicas=(0, 9))._replace(isr=(0,))) == [0]
    partition = hosted.replicas.partitions[T0]
    now = hosted.broker.clock.now()
    progress = partition.followers[9]
    progress.item = SimpleNamespace(
        unbind=lambda: None, last_fetch=lambda: now, mark_dirty=lambda: None
    )
    partition.record_follower_fetch(progress, 0, now)
    assert partition.isr_state.proposed == (0,)
    live = (hosted.broker.info, follower)
    await hosted.handle(UpdateMetadataRequest(0, EPOCH, hosted.epoch, (), live, ()))
    assert partition.isr_state.proposed == (0, 9)


FOLLOWERS = tuple(Broker(n, endpoints("127.0.0.1", 9092, "127.0.0.1", 9093)) for n in (8, 9))


async def send_suspects(hosted: Hosted, *suspects: int) -> None:
    live = (hosted.broker.info, *FOLLOWERS)
    await hosted.handle(
        UpdateMetadataRequest(0, EPOCH, hosted.epoch, (), live, (), suspects=suspects)
    )


async def test_suspect_leaves_the_isr_after_the_change_that_is_pending(hosted: Hosted) -> None:
    await send_suspects(hosted)
    assert await hosted.tell(state(replicas=(0, 8, 9), isr=(0, 8))) == [0]
    partition = hosted.replicas.partitions[T0]
    partition.expand_isr(9)
    await send_suspects(hosted, 9)
    assert partition.isr_state == PendingExpand((0, 8), 9)
    hosted.replicas.isr_changes._committed(partition, partition.isr_committed(6, 0))
    assert partition.isr_state == PendingShrink((0, 8, 9), frozenset({9}))


async def test_new_leader_removes_a_suspect_that_it_knew_before(hosted: Hosted) -> None:
    await send_suspects(hosted, 9)
    assert await hosted.tell(state(replicas=(0, 8, 9))) == [0]
    partition = hosted.replicas.partitions[T0]
    assert partition.isr_state == PendingShrink((0, 8, 9), frozenset({9}))


async def test_no_isr_is_proposed_for_a_broker_that_died_or_shuts_down(hosted: Hosted) -> None:
    await send_suspects(hosted)
    assert await hosted.tell(state(replicas=(0, 8, 9))) == [0]
    partition = hosted.replicas.partitions[T0]
    leaving = state(replicas=(0, 8, 9))._replace(offline=(9,))
    live = (hosted.broker.info, FOLLOWERS[1])
    await hosted.handle(UpdateMetadataRequest(0, EPOCH, hosted.epoch, (leaving,), live, ()))
    assert partition.isr_state == Committed((0, 8, 9))


@pytest.mark.parametrize("kind", ["LeaderAndIsr", "StopReplica"])
async def test_long_request_is_aborted_when_a_newer_controller_sends_a_request_meanwhile(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A long request pauses between partitions, so that clients and heartbeats are served."""
    monkeypatch.setattr("minikafka.broker.replicas.orders._SLICE_MS", -1)
    assert await hosted.tell(state(), state(T1)) == [0, 0]
    higher = [state(tp, epoch=4)._replace(is_new=False) for tp in (T0, T1)]
    stops = tuple(StopReplicaPartition(tp, 3, False) for tp in (T0, T1))
    requests: dict[str, ControllerRequest] = {
        "LeaderAndIsr": LeaderAndIsrRequest(
            0, EPOCH, hosted.epoch, tuple(higher), (hosted.broker.info,), ()
        ),
        "StopReplica": StopReplicaRequest(0, EPOCH, hosted.epoch, stops),
    }
    newer = StopReplicaRequest(9, EPOCH + 1, hosted.epoch, ())
    answers = await asyncio.gather(hosted.handle(requests[kind]), hosted.handle(newer))
    assert [answer.error for answer in answers] == [ErrorCode.STALE_CONTROLLER_EPOCH, 0]
    last = hosted.replicas.partitions[T1]
    assert (last.leader_epoch, last.is_leader) == (3, True)


@pytest.mark.row("R31")
async def test_lowering_min_insync_replicas_commits_waiting_records(hosted: Hosted) -> None:
    config = layout.topic_config_path("t")
    ensemble = hosted.cluster.ensemble
    ensemble.put(config, layout.encode_config({"min.insync.replicas": "2"}))
    assert await hosted.tell(state(replicas=(0, 9))._replace(isr=(0,))) == [0]
    partition = hosted.replicas.partitions[T0]
    partition.lag_max_ms = 0
    assert hosted.produce(T0, b"m1", acks=1) == 1
    assert partition.high_watermark == 0
    ensemble.put(config, layout.encode_config({"min.insync.replicas": "1"}))
    await hosted.replicas.topics_configured({"t"})
    assert partition.high_watermark == 1


@pytest.mark.row("J7", "D11")
async def test_gauges_named_as_in_kafka_count_the_partitions_and_leaders_of_the_broker(
    hosted: Hosted,
) -> None:
    assert await hosted.tell(state(), state(T1, leader=9, replicas=(0, 9))) == [0, 0]
    metrics = hosted.broker.describe()["metrics"]
    assert (metrics["PartitionCount"], metrics["LeaderCount"]) == (2, 1)
    assert metrics["ActiveControllerCount"] == 1
    assert (metrics["OfflinePartitionsCount"], metrics["PreferredReplicaImbalanceCount"]) == (0, 0)
    assert metrics["UnderReplicatedPartitions"] == 0
    assert await hosted.tell(state(epoch=4, replicas=(0, 9))._replace(isr=(0,))) == [0]
    assert hosted.broker.describe()["metrics"]["UnderReplicatedPartitions"] == 1


async def test_failed_read_by_a_partition_reader_takes_the_log_directory_offline(
    hosted: Hosted,
) -> None:
    await hosted.tell(state(T0))
    await hosted.replicas.appends.append(T0, batch(b"v"))
    partition = hosted.replicas.partitions[T0]
    partition.log.segments[0].file.close()
    with pytest.raises(KafkaError) as refused:
        hosted.replicas.reader(T0).read(1)
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.offline


async def test_failed_read_by_a_partition_reader_wakes_waiting_fetches(hosted: Hosted) -> None:
    attempts: list[int] = []

    class Fetch:
        def attempt(self) -> None:
            attempts.append(1)

    await hosted.tell(state(T0))
    await hosted.replicas.appends.append(T0, batch(b"v"))
    partition = hosted.replicas.partitions[T0]
    partition.waiting[Fetch()] = None
    partition.log.segments[0].file.close()
    with pytest.raises(KafkaError):
        hosted.replicas.reader(T0).read(1)
    await hosted.broker.clock.sleep(1)
    assert attempts


async def test_only_the_replica_whose_directory_is_a_symbolic_link_is_refused(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    storage = hosted.replicas.logs.storage
    monkeypatch.setattr(storage, "is_link", lambda path: path.endswith("/t-0"))
    assert await hosted.tell(state(T0), state(T1)) == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
    assert "t-0 is not hosted: /data/t-0 must not be a symbolic link" in caplog.text
    assert hosted.replicas.error_for(T0) == ErrorCode.KAFKA_STORAGE_ERROR
    assert hosted.produce(T1, b"still served") == 1
    monkeypatch.undo()
    assert await hosted.tell(state(T0, epoch=4)) == [0]
    assert hosted.produce(T0, b"served again") == 1
