"""Whole brokers on Apache ZooKeeper: how replicas lead, follow, commit and are fenced."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.clusters.zookeeper_brokers import (
    WAIT_SECONDS,
    NewCluster,
    Story,
    ZooKeeperBrokers,
    eventually,
)

from minikafka.base.errors import ErrorCode, KafkaError, StorageFailed
from minikafka.base.model import (
    LeaderAndIsrRequest,
    PartitionState,
    StopReplicaPartition,
    StopReplicaRequest,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.client import NewTopic
from minikafka.client.client import NotProduced
from minikafka.client.connection import BrokerConnection
from minikafka.kafka.records.batch import Record
from minikafka.kafka.wire.codec import decode_response, request
from minikafka.kafka.wire.versions import FETCH
from minikafka.runtime.transport import SocketTransport
from minikafka.zookeeper.nodes import layout

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def stop_fetching(brokers: ZooKeeperBrokers, follower: int, tp: TopicPartition = T0) -> None:
    brokers.brokers[follower].replicas.fetchers.remove(tp)


def fetch_again(brokers: ZooKeeperBrokers, follower: int, tp: TopicPartition = T0) -> None:
    replicas = brokers.brokers[follower].replicas
    replicas.fetchers.add(replicas.partitions[tp])


def row_of(brokers: ZooKeeperBrokers, number: int, tp: TopicPartition = T0) -> dict[str, object]:
    """Return the broker's report of its replica of the partition."""
    rows = brokers.brokers[number].describe()["replicas"]
    return next(row for row in rows if (row["topic"], row["partition"]) == tp)


# ---- commits


@pytest.mark.row("B1", "C33", "C34", "X15")
async def test_records_are_acknowledged_when_every_isr_member_has_them(cluster: NewCluster) -> None:
    async with cluster(2, replica_lag_time_max_ms=30_000) as brokers, brokers.client() as client:
        await brokers.create("t", {0: (1, 2), 1: (1, 2)})
        await client.produce("t", [Record(value=b"a")] * 3, partition=0)
        led = row_of(brokers, 1)
        assert (led["role"], led["leader"], led["high_watermark"], led["log_end_offset"]) == (
            "leader",
            1,
            3,
            3,
        )
        assert set(led["isr"]) <= {1, 2}  # type: ignore[call-overload]

        async def follower_knows() -> bool:
            followed = row_of(brokers, 2)
            assert followed["high_watermark"] <= followed["log_end_offset"]  # type: ignore[operator]
            return (followed["high_watermark"], followed["log_end_offset"]) == (3, 3)

        await eventually(follower_knows, "the follower has the leader's high watermark")
        stop_fetching(brokers, 2)
        waiting = asyncio.ensure_future(client.produce("t", [Record(value=b"b")], partition=0))

        async def is_waiting() -> bool:
            return row_of(brokers, 1)["waiting_produces"] == 1

        await eventually(is_waiting, "the produce request waits")
        async with brokers.client() as other:
            await other.produce("t", [Record(value=b"c")], partition=1)
        led = row_of(brokers, 1)
        assert (led["high_watermark"], led["log_end_offset"]) == (3, 4)
        assert not waiting.done()
        fetch_again(brokers, 2)
        assert [produced.offset for produced in await waiting] == [3]
        led = row_of(brokers, 1)
        assert (led["high_watermark"], led["waiting_produces"]) == (4, 0)


@pytest.mark.row("B2", "C28", "C40", "M3", "R30", "X16")
async def test_lagging_follower_leaves_the_isr_after_the_configured_time(
    cluster: NewCluster,
) -> None:
    lag_ms = 4_000
    async with cluster(2, replica_lag_time_max_ms=lag_ms) as brokers, brokers.client() as client:
        await brokers.create("t", {0: (1, 2)})
        clock = brokers.brokers[1].clock
        begun = clock.now()
        # With steady small writes, the follower always lacks some records.
        while clock.now() < begun + 1.5 * lag_ms:
            await client.produce("t", [Record(value=b"a")], partition=0, acks=1)
        state = await brokers.state(T0)
        assert state is not None
        assert set(state.isr) == {1, 2}
        assert not Story(brokers.history()).of("isr")
        stop_fetching(brokers, 2)
        stopped, end = clock.now(), row_of(brokers, 1)["log_end_offset"]
        produced = await asyncio.gather(
            *(client.produce("t", [Record(value=b"b")], partition=0) for _ in range(3))
        )
        assert clock.now() - stopped > lag_ms / 2
        assert [one[0].offset for one in produced] == [end, end + 1, end + 2]  # type: ignore[operator]
        await brokers.has_state(T0, 1, 1)
        (shrunk,) = Story(brokers.history()).of("isr")
        assert (shrunk["broker"], shrunk["change"], shrunk["isr"]) == (1, "shrink", [1])
        report = brokers.brokers[1].explain(T0)["replica"]
        catching_up = {one["broker"] for one in report["followers"]} - set(report["isr"])
        assert (report["leader"], report["isr"], catching_up) == (1, [1], {2})
        assert set(report["isr"]) | catching_up == set(report["replicas"]) == {1, 2}
        fetch_again(brokers, 2)
        await brokers.has_state(T0, 1, 1, 2)


@pytest.mark.row("R23")
async def test_sole_isr_member_retries_its_controlled_shutdown_and_then_stops(
    cluster: NewCluster,
) -> None:
    async with cluster(controlled_shutdown_max_retries=2) as brokers:
        first = brokers.controller.config.broker_id
        going, dead = (n for n in (1, 2, 3) if n != first)
        await brokers.create("t", {0: (going, dead)})
        await brokers.die(dead)
        await brokers.has_state(T0, going, going)
        await brokers.settled()
        await brokers.stop(going)
        story = Story(brokers.history())
        answers = [
            line
            for line in story.of("broker")
            if line["fact"] == "controlled shutdown answered" and line["broker"] == going
        ]
        assert [line["still_leading"] for line in answers] == [{"t": [0]}] * 2


@pytest.mark.row("C18", "C27", "C39", "J6")
async def test_elected_leader_refuses_clients_until_it_gets_leader_and_isr(
    cluster: NewCluster,
) -> None:
    async with cluster(2) as brokers:
        first = brokers.controller.config.broker_id
        held = 3 - first
        brokers.brokers[held].gate.hold("broker.leader_and_isr")
        async with brokers.client() as client:
            creating = asyncio.ensure_future(
                client.admin.create_topics([NewTopic("t", assignment={0: (held, first)})])
            )
            await brokers.has_state(T0, held, held, first)
            code = brokers.brokers[held].replicas.error_for(T0)
            assert code in (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
            )
            async with brokers.client(delivery_timeout_ms=300) as hasty:
                with pytest.raises((NotProduced, KafkaError)):
                    await hasty.produce("t", [Record(value=b"a")], partition=0)
            other = await client.admin.create_topics([NewTopic("u", assignment={0: (first,)})])
            assert other["u"].ok, "the controller does not wait for the held broker"

            async def waits_for_held_only() -> bool:
                waiting = brokers.controller.describe()["backlog"]
                return waiting[str(first)] == 0 < waiting[str(held)]

            await eventually(waits_for_held_only, "only the held broker has requests to answer")
            brokers.brokers[held].gate.release("broker.leader_and_isr")
            assert (await creating)["t"].ok
            (produced,) = await client.produce("t", [Record(value=b"b")], partition=0)
            assert produced.offset == 0


@pytest.mark.row("R47")
async def test_produce_times_out_although_its_records_are_in_the_log(cluster: NewCluster) -> None:
    async with cluster(2, replica_lag_time_max_ms=60_000) as brokers:
        await brokers.create("t", {0: (1, 2)})
        stop_fetching(brokers, 2)
        async with brokers.client(request_timeout_ms=1_000, delivery_timeout_ms=1_400) as hasty:
            with pytest.raises(NotProduced, match="REQUEST_TIMED_OUT"):
                await hasty.produce("t", [Record(value=b"a")], partition=0)
        assert (row_of(brokers, 1)["log_end_offset"], row_of(brokers, 1)["high_watermark"]) == (
            1,
            0,
        )
        fetch_again(brokers, 2)

        async def is_committed() -> bool:
            return row_of(brokers, 1)["high_watermark"] == 1

        await eventually(is_committed, "the record is committed later")


@pytest.mark.row("R48", "R31")
async def test_waiting_fetch_is_answered_when_the_high_watermark_passes_a_record(
    cluster: NewCluster,
) -> None:
    async with cluster(2, replica_lag_time_max_ms=60_000) as brokers, brokers.client() as client:
        await brokers.create("t", {0: (1, 2)})
        none = await client.fetch("t", 0, 0, max_wait_ms=100)
        assert none.records == []
        waiting = asyncio.ensure_future(client.fetch("t", 0, 0, max_wait_ms=60_000))
        stop_fetching(brokers, 2)
        async with brokers.client() as producer:
            await producer.produce("t", [Record(value=b"a")], partition=0, acks=1)
            async with brokers.client() as other:
                early = await other.fetch("t", 0, 0, max_wait_ms=300)
            assert early.records == [], "the record is not committed"
            assert not waiting.done()
            fetch_again(brokers, 2)
            found = await waiting
        assert [record.value for record in found.records] == [b"a"]


LEADER_ONLY = 10
"""The last version of Fetch that consumers can send to leaders only (KIP-392)."""


async def answer_of_fetch(brokers: ZooKeeperBrokers, number: int, epoch: int) -> ErrorCode:
    """Fetch partition t-0 with a maximum wait of one minute, and return the error code."""
    partition = {"partition": 0, "current_leader_epoch": epoch, "fetch_offset": 0}
    body = request(
        FETCH,
        LEADER_ONLY,
        replica_id=-1,
        max_wait_ms=60_000,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[{"topic": "t", "partitions": [{**partition, "partition_max_bytes": 1 << 20}]}],
    )
    connecting = partial(BrokerConnection, "consumer", brokers.brokers[number].clock)
    connection: Any = await SocketTransport().connect(
        connecting, "127.0.0.1", brokers.ports[number]
    )
    try:
        data = await connection.request(FETCH, LEADER_ONLY, body, 90_000)
    finally:
        connection.close()
    response = decode_response(FETCH, LEADER_ONLY, memoryview(data))
    return ErrorCode(response.responses[0].partitions[0].error_code)


@pytest.mark.row("R48")
@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("leader", ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("leader epoch", ErrorCode.FENCED_LEADER_EPOCH),
        ("deletion", ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("log directory", ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
async def test_waiting_fetch_is_answered_when_leadership_or_log_directory_changes(
    cluster: NewCluster, change: str, code: ErrorCode
) -> None:
    """No record arrives and the brokers' timeouts are long, so only the change can end the wait of the fetch."""
    async with cluster(3, replica_lag_time_max_ms=120_000) as brokers:
        controller = brokers.controller.config.broker_id
        leader, other = (n for n in (1, 2, 3) if n != controller)
        await brokers.create("t", {0: (leader, other)})
        led = brokers.brokers[leader].replicas.partitions[T0]
        epoch = led.leader_epoch if change == "leader epoch" else -1
        waiting = asyncio.ensure_future(answer_of_fetch(brokers, leader, epoch))

        async def is_waiting() -> bool:
            return bool(led.waiting)

        await eventually(is_waiting, "the fetch waits")
        if change == "leader":
            swapped = layout.encode_reassignments({T0: [other, leader]})
            await brokers.observer.create(layout.REASSIGN_PARTITIONS, swapped)
            await brokers.gone(layout.REASSIGN_PARTITIONS)
            assert not waiting.done(), "the leader has kept its role"
            async with brokers.client() as client:
                await client.admin.elect_leaders([T0])
        elif change == "leader epoch":
            await brokers.die(other)
        elif change == "deletion":
            await brokers.observer.create(layout.delete_topic_path("t"), b"")
        else:
            failure = StorageFailed(brokers.log_dir(leader), OSError("unreadable"))
            brokers.brokers[leader].replicas.purgatory.read_failed(led, failure)
        async with asyncio.timeout(WAIT_SECONDS):
            assert await waiting is code


@pytest.mark.row("R36")
async def test_partitions_with_too_few_replicas_in_sync_are_counted(cluster: NewCluster) -> None:
    async with cluster(3, min_insync_replicas=2) as brokers, brokers.client() as client:
        first = brokers.controller.config.broker_id
        other, third = (n for n in (1, 2, 3) if n != first)
        await brokers.create("t", {0: (first, other)})

        def counts() -> tuple[int, ...]:
            metrics = brokers.brokers[first].describe()["metrics"]
            names = (
                "UnderReplicatedPartitions",
                "UnderMinIsrPartitionCount",
                "AtMinIsrPartitionCount",
            )
            return tuple(metrics[name] for name in names)

        assert counts() == (0, 0, 1)
        brokers.brokers[third].gate.hold("broker.leader_and_isr")
        await client.admin.alter_reassignments({T0: (first, other, third)})
        assert (await brokers.assignment(T0)).adding == (third,)  # type: ignore[union-attr]
        assert counts()[0] == 0, "a replica that is being added is not missing"

        async def is_reassigning() -> bool:
            return brokers.brokers[first].describe()["metrics"]["ReassigningPartitions"] == 1

        await eventually(is_reassigning, "the leader knows of the reassignment")
        assert counts()[0] == 0, "a replica that is being added is not missing"
        brokers.brokers[third].gate.release("broker.leader_and_isr")
        await brokers.has_state(T0, first, first, other, third)
        await brokers.die(other)
        await brokers.has_state(T0, first, first, third)
        await brokers.settled()
        assert counts() == (1, 0, 1)
        assert brokers.brokers[first].describe()["metrics"]["ReassigningPartitions"] == 0
        await brokers.die(third)
        await brokers.has_state(T0, first, first)
        await brokers.settled()
        assert counts() == (1, 1, 0)


# ---- start and stop


@pytest.mark.row("B4", "C14", "M5")
async def test_high_watermarks_are_kept_in_a_file_across_a_restart(cluster: NewCluster) -> None:
    async with cluster() as brokers, brokers.client() as client:
        going = next(
            n for n, b in brokers.brokers.items() if not b.capabilities.diagnostics.is_active
        )
        other, third = (n for n in (1, 2, 3) if n != going)
        await brokers.create("t", {0: (other, going)})
        await client.produce("t", [Record(value=b"a")] * 3, partition=0)
        file = Path(brokers.log_dir(going)) / "replication-offset-checkpoint"

        async def is_written() -> bool:
            return file.exists() and "t 0 3" in file.read_text().splitlines()

        await eventually(is_written, f"{file} holds the high watermark")
        assert brokers.directories(third, "t") == [], "only assigned brokers have a replica"
        await brokers.die(going)
        await brokers.has_state(T0, other, other)
        await brokers.die(other)
        # Otherwise the first request of the next controller may still name `other` as the leader.
        await brokers.settled()
        for checkpoint, restored in ((2, 2), (99, 3)):
            if going in brokers.brokers:
                await brokers.die(going)
            file.write_text(f"0\n1\nt 0 {checkpoint}\n")
            await brokers.start(going)

            async def is_hosted() -> bool:
                return bool(brokers.brokers[going].describe()["replicas"])

            await eventually(is_hosted, "the replica was started")
            shown = row_of(brokers, going)
            assert (shown["leader"], shown["log_end_offset"]) == (-1, 3)
            assert shown["high_watermark"] == restored, "of the file, and at most the log end"


@pytest.mark.row("C16", "R39", "X18")
async def test_former_leader_truncates_what_the_next_leader_does_not_have(
    cluster: NewCluster,
) -> None:
    """The next leader is elected uncleanly. The only lost records are those that the first leader alone had."""
    async with cluster(3, unclean_leader_election_enable=True) as brokers:
        first = brokers.controller.config.broker_id
        one, two = (n for n in (1, 2, 3) if n != first)
        await brokers.create("t", {0: (one, two)})
        async with brokers.client() as client:
            await client.produce("t", [Record(value=b"a")] * 3, partition=0)
            stop_fetching(brokers, two)
            await client.produce("t", [Record(value=b"lost")] * 2, partition=0)
            await brokers.has_state(T0, one, one)
        await brokers.die(one)
        state = await brokers.has_state(T0, two, two)
        async with brokers.client() as client:
            await client.produce("t", [Record(value=b"b")], partition=0)
            await brokers.start(one)
            await brokers.has_state(T0, two, one, two)
            found = {
                number: brokers.brokers[number].replicas.partitions[T0].log.epochs.entries
                for number in (one, two)
            }
            assert found[one] == found[two] == [(0, 0), (state.leader_epoch, 3)]
            assert row_of(brokers, one)["log_end_offset"] == 4
            read = [r.value async for r in client.consume("t", start={0: 0}, until_end=True)]
        assert read == [b"a"] * 3 + [b"b"]


# ---- fencing


@pytest.mark.row("R5", "R6", "R7", "R8", "T5")
async def test_broker_refuses_controller_requests_with_older_epochs(cluster: NewCluster) -> None:
    async with cluster(2) as brokers:
        await brokers.create("t", {0: (1, 2)})
        broker = brokers.brokers[1]
        await brokers.die(2)
        await brokers.start(2)
        state = await brokers.has_state(T0, 1, 1, 2)
        await brokers.settled()
        assert state.leader_epoch == 1
        controller, epoch = brokers.controller.config.broker_id, state.controller_epoch
        partition = PartitionState(
            T0, 2, state.leader_epoch, (1, 2), state.state_version, epoch, (1, 2)
        )

        async def answer(request: object) -> tuple[int, list[int]]:
            response = await broker.capabilities.roles.handle(request)  # type: ignore[arg-type]
            return response.error, [code for _, code in response.partitions]

        def roles(controller_epoch: int, broker_epoch: int) -> LeaderAndIsrRequest:
            return LeaderAndIsrRequest(
                controller, controller_epoch, broker_epoch, (partition,), (), ()
            )

        now = broker.info.epoch
        stale_controller = int(ErrorCode.STALE_CONTROLLER_EPOCH)
        stale_broker = int(ErrorCode.STALE_BROKER_EPOCH)
        assert (await answer(roles(epoch - 1, now)))[0] == stale_controller
        assert (await answer(roles(epoch, now - 1)))[0] == stale_broker
        equal = await answer(roles(epoch, now))
        assert equal == (0, [stale_controller]), "an equal leader epoch"
        stop = StopReplicaPartition(T0, state.leader_epoch - 1, delete=True)
        old_stop = StopReplicaRequest(controller, epoch, now, (stop,))
        assert (await answer(old_stop))[1] == [int(ErrorCode.FENCED_LEADER_EPOCH)]
        metadata = UpdateMetadataRequest(controller, epoch - 1, now, (), (), ())
        assert (await answer(metadata))[0] == stale_controller
        assert row_of(brokers, 1)["role"] == "leader"
        stop = StopReplicaPartition(T0, state.leader_epoch, delete=False)
        assert await answer(StopReplicaRequest(controller, epoch, now, (stop,))) == (0, [0])
        assert row_of(brokers, 1)["role"] == "follower", "stopped, with its files"
        assert brokers.directories(1, "t") == ["t-0"]


@pytest.mark.row("H5", "X5")
async def test_reassignment_elects_no_target_that_has_left_the_isr(cluster: NewCluster) -> None:
    """The test holds the controller at a step while a target leaves the ISR. The election must use the new ISR."""
    async with cluster(4, replica_lag_time_max_ms=1_500) as brokers, brokers.client() as client:
        await brokers.create("t", {0: (1, 2)})
        gate = brokers.controller.gate
        gate.hold("reassignment.B1")
        submitted = layout.encode_reassignments({T0: [3, 4]})
        await brokers.observer.create(layout.REASSIGN_PARTITIONS, submitted)
        await brokers.has_state(T0, 1, 1, 2, 3, 4)

        async def is_held() -> bool:
            return bool(gate.waiting)

        await eventually(is_held, "the targets are in sync")
        stop_fetching(brokers, 3)
        await client.produce("t", [Record(value=b"a")], partition=0)
        await brokers.has_state(T0, 1, 1, 2, 4)
        gate.release("reassignment.B1")
        await brokers.gone(layout.REASSIGN_PARTITIONS)
        await brokers.settled()
        led = Story(brokers.history()).about(T0).of("decision")
        (elected,) = [
            line
            for line in led
            if "Reassign" in (line.get("election") or "") and line["verdict"] == "move"
        ]
        assert elected["leader"] == 4
        await brokers.has_state(T0, 4, 3, 4)


@pytest.mark.row("R55", "D18")
async def test_next_controller_resumes_a_reassignment_from_the_topic_node(
    cluster: NewCluster,
) -> None:
    async with cluster(4) as brokers:
        first = brokers.controller.config.broker_id
        old, new = [n for n in (1, 2, 3, 4) if n != first][:2]
        await brokers.create("t", {0: (old,)})
        brokers.brokers[new].gate.hold("broker.leader_and_isr")
        async with brokers.client() as client:
            await client.admin.alter_reassignments({T0: (new,)})
        node = await brokers.json(layout.topic_path("t"))
        assert node["partitions"] == {"0": [new, old]}
        assert (node["adding_replicas"], node["removing_replicas"]) == ({"0": [new]}, {"0": [old]})
        assert await brokers.node(layout.REASSIGN_PARTITIONS) is None
        await brokers.die(first)
        brokers.brokers[new].gate.release("broker.leader_and_isr")
        await brokers.has_state(T0, new, new)

        async def is_final() -> bool:
            node = await brokers.json(layout.topic_path("t"))
            return (node["partitions"], node["adding_replicas"]) == ({"0": [new]}, {})

        await eventually(is_final, "the topic node has its final form")
