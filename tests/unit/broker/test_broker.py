"""Complete brokers in one event loop, with an in-memory network, disk and ZooKeeper."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from support.until import until

from minikafka.base.endpoints import Endpoint
from minikafka.base.errors import Closed, ErrorCode, OutcomeUnknown, StaleSession, StorageFailed
from minikafka.base.model import ReplicaAssignment, StopReplicaRequest, TopicPartition
from minikafka.base.ports import Call
from minikafka.broker.broker import BrokerServer
from minikafka.broker.modes.zookeeper.registration import Registration
from minikafka.broker.rpc import messages
from minikafka.client import NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.control_plane import MemoryControlPlane
from minikafka.simulation.storage import MemoryStorage
from minikafka.zookeeper.nodes import layout


def values(count: int, start: int = 0) -> list[Record]:
    return [Record(key=b"k%d" % (i % 7), value=b"v%d" % i) for i in range(start, start + count)]


async def read_all(cluster: MemoryCluster, topic: str) -> list[bytes | None]:
    async with cluster.client() as client:
        return sorted([row.value async for row in client.consume(topic, until_end=True)])


async def test_record_is_read_back_from_a_cluster_of_three_brokers() -> None:
    async with MemoryCluster() as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", 6, 3, {"min.insync.replicas": "2"}))
        await client.produce("t", values(300))
        assert await read_all(cluster, "t") == sorted(b"v%d" % i for i in range(300))
        for broker in cluster.brokers.values():
            ends = {
                tp: partition.log.log_end_offset
                for tp, partition in broker.replicas.partitions.items()
            }
            assert sum(ends.values()) == 300


async def test_brokers_keep_each_timestamp_and_value_of_a_record() -> None:
    times = (-1, -(2**63), 2**63 - 1, 0, -5, 10**18)
    headers = (("h", None), ("h", b""), ("h", b"\xff"))
    rows = [
        Record(timestamp=when, key=data, value=data, headers=headers)
        for when in times
        for data in (None, b"", b"\xff\x00")
    ]
    async with MemoryCluster() as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", 1, 3))
        await client.produce("t", rows, codec=1)
        await client.produce("t", [*rows, Record(value=b"now")])
        read = [record async for record in client.consume("t", until_end=True)]
    assert [tuple(record[3:7]) for record in read[:-1]] == [tuple(row[1:]) for row in rows] * 2
    assert read[-1].timestamp > 10**12


async def test_followers_get_the_high_watermark_of_an_idle_partition() -> None:
    async with MemoryCluster() as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", 1, 3))
        await client.produce("t", values(5))
        partitions = [next(iter(b.replicas.partitions.values())) for b in cluster.brokers.values()]
        await until(lambda: all(partition.high_watermark == 5 for partition in partitions))


@pytest.mark.row("I8", "R23", "R24")
async def test_controlled_shutdown_moves_leaderships_and_leaves_every_isr() -> None:
    async with MemoryCluster() as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", 6, 3, {"min.insync.replicas": "2"}))
        await client.produce("t", values(100))
        await cluster.stop(2)
        await until(lambda: 2 not in cluster.brokers[0].metadata.brokers)
        for partition in cluster.brokers[0].replicas.partitions.values():
            await until(
                lambda partition=partition: 2 not in partition.isr and partition.leader != 2
            )
        await client.produce("t", values(100, start=100))
        await cluster.start(2)
        leaders = [
            p
            for b in cluster.brokers.values()
            for p in b.replicas.partitions.values()
            if p.is_leader
        ]
        await until(lambda: all(len(p.isr) == 3 for p in leaders if p.is_leader))
        assert await read_all(cluster, "t") == sorted(b"v%d" % i for i in range(200))


async def test_controlled_shutdown_asks_the_next_controller_when_one_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = {"controlled_shutdown_retry_backoff_ms": 10, "controlled_shutdown_max_retries": 500}
    async with MemoryCluster(**keys) as cluster:
        first = next(b for b in cluster.brokers.values() if b.capabilities.diagnostics.is_active)
        leaving = next(
            n for n, b in cluster.brokers.items() if not b.capabilities.diagnostics.is_active
        )
        endpoint = first.info.endpoint("CONTROLLER")
        assert endpoint is not None
        control_port = endpoint.port
        asked: list[int] = []
        call = MemoryControlPlane.call

        async def silent(self: Any, called: Endpoint, method: str, *rest: Any, **how: Any) -> Any:
            if method == messages.CONTROLLED_SHUTDOWN:
                asked.append(called.port)
                if called.port == control_port:
                    await asyncio.get_running_loop().create_future()
            return await call(self, called, method, *rest, **how)

        monkeypatch.setattr(MemoryControlPlane, "call", silent)
        stopped = asyncio.ensure_future(cluster.stop(leaving))
        await until(lambda: bool(asked))
        await cluster.sessions[first.info.id].expire()
        await stopped
        assert asked[0] == control_port
        facts = [line for line in cluster.ledger(leaving) if line.get("attempt", 1) > 1]
        assert "error" not in facts[-1], "the next controller has answered"
        await cluster.sessions[first.info.id].attach()
        await until(lambda: first.info.id in first.metadata.brokers)


@pytest.mark.row("E9")
async def test_broker_registers_again_and_rejoins_isrs_after_its_session_expired() -> None:
    async with MemoryCluster() as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", 3, 3, {"min.insync.replicas": "2"}))
        await client.produce("t", values(50))
        before = cluster.brokers[1].info.epoch
        await cluster.sessions[1].expire()
        await cluster.sessions[1].attach()
        await until(lambda: cluster.brokers[1].info.epoch > before)
        await client.produce("t", values(50, start=50))
        await until(
            lambda: all(
                len(p.isr) == 3
                for b in cluster.brokers.values()
                for p in b.replicas.partitions.values()
                if p.is_leader
            )
        )
        assert await read_all(cluster, "t") == sorted(b"v%d" % i for i in range(100))


async def test_registration_contains_the_time_at_which_it_was_made() -> None:
    async with MemoryCluster(1) as cluster:
        broker = cluster.brokers[0]
        data, _ = await cluster.sessions[0].get(layout.broker_path(0))
        assert 0 < int(json.loads(data)["timestamp"]) <= broker.clock.wall_ms()


async def test_another_broker_becomes_the_controller_when_the_controller_stops() -> None:
    async with MemoryCluster() as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", 3, 3, {"min.insync.replicas": "2"}))
        await client.produce("t", values(50))
        first = next(
            number
            for number, broker in cluster.brokers.items()
            if broker.capabilities.diagnostics.is_active
        )
        await cluster.stop(first)
        await until(
            lambda: any(
                broker.capabilities.diagnostics.is_active for broker in cluster.brokers.values()
            )
        )
        await client.produce("t", values(50, start=50))
        async with cluster.client() as other:
            await other.create_topics(NewTopic("u", 1, 2))
            await other.produce("u", values(10))
        assert await read_all(cluster, "t") == sorted(b"v%d" % i for i in range(100))


def active(cluster: MemoryCluster) -> BrokerServer:
    return next(
        broker for broker in cluster.brokers.values() if broker.capabilities.diagnostics.is_active
    )


def move(cluster: MemoryCluster, tp: TopicPartition, replicas: tuple[int, ...]) -> None:
    data = layout.encode_reassignments({tp: replicas})
    cluster.ensemble.put(layout.REASSIGN_PARTITIONS, data)


def assigned(cluster: MemoryCluster, tp: TopicPartition) -> ReplicaAssignment:
    _, assignment = layout.decode_topic(cluster.ensemble.nodes[layout.topic_path(tp.topic)].data)
    return assignment[tp.partition]


async def placed(cluster: MemoryCluster) -> TopicPartition:
    """Create partition t-0 on brokers 0 and 1, with 100 records."""
    async with cluster.client() as client:
        await client.create_topics(NewTopic("t", assignment={0: (0, 1)}))
        await client.produce("t", values(100))
    return TopicPartition("t", 0)


@pytest.mark.row("I5", "L5", "A11")
async def test_reassignment_copies_records_to_new_brokers_and_deletes_the_old_replicas() -> None:
    async with MemoryCluster(brokers=4) as cluster:
        tp = await placed(cluster)
        move(cluster, tp, (2, 3))
        await until(lambda: assigned(cluster, tp) == ReplicaAssignment((2, 3)))
        await until(lambda: layout.REASSIGN_PARTITIONS not in cluster.ensemble.nodes)
        for number in (0, 1):
            await until(lambda number=number: tp not in cluster.brokers[number].replicas.logs.logs)
        assert cluster.brokers[2].replicas.partitions[tp].is_leader
        assert await read_all(cluster, "t") == sorted(b"v%d" % i for i in range(100))


@pytest.mark.row("R66")
async def test_broker_deletes_replica_that_was_moved_while_it_was_down() -> None:
    async with MemoryCluster(brokers=4) as cluster:
        tp = await placed(cluster)
        await cluster.stop(1)
        move(cluster, tp, (2, 3))
        await until(lambda: assigned(cluster, tp) == ReplicaAssignment((2, 3)))
        broker = await cluster.start(1)
        await until(lambda: tp not in broker.replicas.logs.logs)
        assert await read_all(cluster, "t") == sorted(b"v%d" % i for i in range(100))


@pytest.mark.row("R66", "L2")
async def test_broker_deletes_moved_replica_when_it_restarts_during_topic_deletion() -> None:
    """Once the topic is deleted, the broker can no longer find out which topic the replica belonged to."""
    async with MemoryCluster(brokers=4) as cluster:
        tp = await placed(cluster)
        await cluster.stop(1)
        move(cluster, tp, (2, 3))
        await until(lambda: assigned(cluster, tp) == ReplicaAssignment((2, 3)))
        await cluster.stop(3)
        async with cluster.client() as client:
            await client.delete_topics("t")
        await until(
            lambda: active(cluster).capabilities.diagnostics.summary()[
                "topics_ineligible_for_deletion"
            ]
        )
        broker = await cluster.start(1)
        await until(lambda: tp not in broker.replicas.logs.logs)
        await cluster.start(3)
        await until(lambda: layout.topic_path("t") not in cluster.ensemble.nodes)


@pytest.mark.row("R66")
async def test_broker_renames_replica_as_stray_if_its_topic_was_deleted_while_it_was_down() -> None:
    """The replica had been moved to another broker, so the deletion did not wait for this broker."""
    async with MemoryCluster(brokers=4) as cluster:
        tp = await placed(cluster)
        await cluster.stop(1)
        move(cluster, tp, (2, 3))
        await until(lambda: assigned(cluster, tp) == ReplicaAssignment((2, 3)))
        async with cluster.client() as client:
            await client.delete_topics("t")
        await until(lambda: layout.topic_path("t") not in cluster.ensemble.nodes)
        broker = await cluster.start(1)
        await until(lambda: tp not in broker.replicas.logs.logs)
        assert tp not in broker.replicas.partitions
        assert [name for name in cluster.storages[1].names("/data") if name.endswith("-stray")]


@pytest.mark.row("R66")
async def test_broker_keeps_replica_whose_topic_node_is_not_readable() -> None:
    async with MemoryCluster(brokers=3) as cluster:
        tp = await placed(cluster)
        readable = cluster.ensemble.nodes[layout.topic_path("t")].data
        for number in cluster.storages:
            await cluster.stop(number)
        cluster.ensemble.put(layout.topic_path("t"), b"garbage")
        for number in cluster.storages:
            await cluster.start(number)
        await until(lambda: all(len(b.metadata.brokers) == 3 for b in cluster.brokers.values()))
        cluster.ensemble.put(layout.topic_path("t"), readable)
        for number in cluster.storages:
            await cluster.stop(number)
        for number in cluster.storages:
            await cluster.start(number)
        await until(lambda: any(tp in b.replicas.partitions for b in cluster.brokers.values()))
        assert await read_all(cluster, "t") == sorted(b"v%d" % i for i in range(100))


@pytest.mark.row("L1", "L2", "A16")
async def test_deleted_topic_is_also_removed_from_a_broker_that_was_down() -> None:
    async with MemoryCluster(brokers=3) as cluster:
        tp = await placed(cluster)
        await cluster.stop(1)
        async with cluster.client() as client:
            await client.delete_topics("t")
        await until(lambda: tp not in cluster.brokers[0].replicas.logs.logs)
        term = active(cluster).capabilities.diagnostics
        await until(lambda: term.summary()["topics_ineligible_for_deletion"])
        assert layout.topic_path("t") in cluster.ensemble.nodes
        broker = await cluster.start(1)
        await until(lambda: layout.topic_path("t") not in cluster.ensemble.nodes)
        assert tp not in broker.replicas.logs.logs
        assert layout.delete_topic_path("t") not in cluster.ensemble.nodes
        assert layout.topic_config_path("t") not in cluster.ensemble.nodes
        async with cluster.client() as client:
            await client.create_topics(NewTopic("t", 1, 3))
            await client.produce("t", values(3))
        assert await read_all(cluster, "t") == sorted(b"v%d" % i for i in range(3))


@pytest.mark.row("R66")
async def test_files_of_a_deleted_topic_are_removed_after_the_delay() -> None:
    async with MemoryCluster(**{"log.segment.delete.delay.ms": 0}) as cluster:
        await placed(cluster)
        async with cluster.client() as client:
            await client.delete_topics("t")
        storages = cluster.storages.values()
        await until(
            lambda: not any(path.startswith("/data/t-") for s in storages for path in s.files)
        )


async def test_registration_is_retried_when_the_session_ends_as_the_node_is_read_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with MemoryCluster(1) as cluster:
        zookeeper = cluster.sessions[0]
        create, exists = zookeeper.create, zookeeper.exists
        path = layout.broker_path(0)
        lost: list[str] = []

        async def unanswered(node: str, data: bytes, **how: Any) -> Any:
            made = await create(node, data, **how)
            if node == path and not lost:
                lost.append("create")
                raise OutcomeUnknown
            return made

        async def interrupted(node: str, **how: Any) -> Any:
            if node == path and lost == ["create"]:
                lost.append("exists")
                await zookeeper.expire()
                await zookeeper.attach()
                raise StaleSession
            return await exists(node, **how)

        monkeypatch.setattr(zookeeper, "create", unanswered)
        monkeypatch.setattr(zookeeper, "exists", interrupted)
        await zookeeper.expire()
        await zookeeper.attach()
        await until(lambda: len(lost) == 2 and path in cluster.ensemble.nodes)
        assert cluster.crashes == []


async def test_broker_registers_in_a_new_session_after_its_first_directory_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with MemoryCluster(1) as cluster:
        broker, path = cluster.brokers[0], layout.broker_path(0)
        first = broker.info.epoch

        def broken(*_: Any, **__: Any) -> None:
            raise StorageFailed("/data/zookeeper-session", OSError(5, "EIO"))

        monkeypatch.setattr(cluster.storages[0], "write_atomically", broken)
        await cluster.sessions[0].expire()
        await cluster.sessions[0].attach()
        await until(lambda: broker.info.epoch > first and path in cluster.ensemble.nodes)
        monkeypatch.undo()
        assert cluster.crashes == []


NOBODY = "00" * 16


def noting(ended: list[int]) -> Callable[[int, bytes], Coroutine[Any, Any, None]]:
    """Return an `end_session` function that only appends the session id to `ended`."""

    async def end_session(session_id: int, password: bytes) -> None:
        ended.append(session_id)

    return end_session


@pytest.mark.parametrize(
    "content",
    [
        *(json.dumps({"id": id_, "password": NOBODY}) for id_ in (2**63, -(2**63) - 1, 0, True)),
        *(f'{{"id": {id_}, "password": "{NOBODY}"}}' for id_ in ("1e400", "1.5", '"7"')),
        json.dumps({"id": 7, "password": NOBODY * 2**20}),
        json.dumps({"id": 7, "password": 7}),
        '{"id": 7',
        "[7]",
        "\udcff",
    ],
    ids=lambda content: content[:40],
)
async def test_invalid_session_file_is_logged_and_ends_no_session(
    content: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[int] = []
    async with MemoryCluster(1) as cluster:
        monkeypatch.setattr(cluster, "_end_session", noting(ended))
        await cluster.stop(0)
        note = content.encode(errors="surrogateescape")
        cluster.storages[0].write_atomically("/data/zookeeper-session", note)
        await cluster.start(0)
    assert ended == []
    assert "/data/zookeeper-session is not readable, the former session will expire" in caplog.text


async def test_starting_broker_ends_the_zookeeper_session_of_the_former_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[int] = []
    async with MemoryCluster(1) as cluster:
        monkeypatch.setattr(cluster, "_end_session", noting(ended))
        for session in (-(2**63), 2**63 - 1):
            await cluster.stop(0)
            note = json.dumps({"id": session, "password": NOBODY}).encode()
            cluster.storages[0].write_atomically("/data/zookeeper-session", note)
            await cluster.start(0)
    assert ended == [-(2**63), 2**63 - 1]


async def test_broker_starts_with_its_other_directories_when_the_first_failed() -> None:
    cluster = MemoryCluster(1, log_dirs="/d,/e")
    cluster.storages[0].fail("/d", errno.EROFS)
    async with cluster:
        broker = cluster.brokers[0]
        assert [directory.replicas for directory in broker.logs.directories()] == [(), None]
        assert layout.broker_path(0) in cluster.ensemble.nodes


async def test_directory_goes_offline_when_an_offset_lookup_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with MemoryCluster(1) as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", 1, 1))
        for start in range(3):
            await client.produce("t", values(1, start))
        partition = cluster.brokers[0].replicas.partitions[TopicPartition("t", 0)]

        def broken(*_: Any) -> bytes:
            raise StorageFailed("/data/t-0/0.log", OSError(5, "EIO"))

        monkeypatch.setattr(partition.log.segments[-1].file, "pread", broken)
        consumed = asyncio.ensure_future(anext(client.consume("t", start={0: 1})))
        await until(lambda: partition.offline)
        consumed.cancel()
        assert cluster.crashes == []


async def test_registered_broker_refuses_a_request_that_was_sent_to_its_former_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The former process had the same address and an older broker epoch."""
    answers: list[asyncio.Future[dict[str, Any]]] = []
    register = Registration.start

    async with MemoryCluster(0) as cluster:

        async def ask_before(registration: Registration) -> None:
            early = StopReplicaRequest(0, 1, 1, ())
            (server,) = cluster.servers.values()
            answers.append(asyncio.ensure_future(server.handler(Call(*messages.encode(early)))))
            await asyncio.sleep(0)
            assert not answers[0].done()
            await register(registration)

        monkeypatch.setattr(Registration, "start", ask_before)
        cluster.storages[0] = MemoryStorage()
        await cluster.start(0)
        assert cluster.brokers[0].info.epoch > 1
        answer = messages.decode_response(await answers[0])
        assert answer.error == ErrorCode.STALE_BROKER_EPOCH


async def test_no_task_crashes_when_the_session_is_closed_during_a_registration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with MemoryCluster(1) as cluster:
        zookeeper: Any = cluster.sessions[0]
        asked = asyncio.Event()

        async def create(*_: Any, **__: Any) -> Any:
            await zookeeper.close()
            asked.set()
            raise Closed

        monkeypatch.setattr(zookeeper, "create", create)
        await zookeeper.expire()
        await zookeeper.attach()
        await asyncio.wait_for(asked.wait(), 10)
        await until(lambda: "session-events" not in cluster.brokers[0].tasks.names())
        assert cluster.crashes == []
