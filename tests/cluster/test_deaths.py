"""Brokers that die by SIGKILL, and whose sessions then expire: the next leader, and what a follower keeps on its disk.

A killed process closes nothing: ZooKeeper deletes its ephemeral nodes when its session has not been heard of for the
timeout. The fast failover is off, so that the expiry alone is the death of a broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from support.clusters.operations import Cast
from support.clusters.stage import BROKERS, RealStage, running_stage
from support.clusters.zookeeper_brokers import Story
from support.ledger.invariants import check_ledgers

from minikafka.base.model import LeaderAndIsr, TopicPartition
from minikafka.broker.ledger.reader import read_all
from minikafka.client.administration.admin import Resource, ResourceType
from minikafka.kafka.records.batch import Record
from minikafka.storage.log import epochs
from minikafka.zookeeper.nodes import layout

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture(scope="module")
def shared_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealStage]:
    data = tmp_path_factory.mktemp("deaths")
    config = {
        "zookeeper.session.timeout.ms": 3_000,
        "minikafka.fast.failover.enable": False,
        "replica.high.watermark.checkpoint.interval.ms": 100,
    }
    yield from running_stage(data, ends_sessions=False, config=config)
    check_ledgers(data)


def story(stage: RealStage) -> Story:
    """Return the ledgers of all brokers so far."""
    return Story(read_all([stage.cluster.directory.broker_ledger(broker) for broker in BROKERS]))


def registered(stage: RealStage) -> set[int]:
    return {int(name) for name in stage.children("/brokers/ids")}


async def produce(stage: RealStage, values: Sequence[bytes], tp: TopicPartition = T0) -> None:
    async with stage.client() as client:
        records = [Record(value=value) for value in values]
        await client.produce(tp.topic, records, partition=tp.partition)


async def consume(stage: RealStage, tp: TopicPartition = T0) -> list[bytes | None]:
    async with stage.client() as client:
        rows = client.consume(tp.topic, start={tp.partition: 0}, until_end=True)
        return [row.value async for row in rows]


async def has_state(
    stage: RealStage, tp: TopicPartition, leader: int, isr: Sequence[int]
) -> LeaderAndIsr:
    """Wait until the partition has this leader and ISR; return its state."""

    def state() -> LeaderAndIsr | None:
        return stage.leadership(tp)

    def is_reached() -> bool:
        found = state()
        return found is not None and (found.leader, set(found.isr)) == (leader, set(isr))

    await stage.eventually(is_reached, state)
    found = state()
    assert found is not None
    return found


async def replica(stage: RealStage, broker: int, tp: TopicPartition = T0) -> dict[str, Any]:
    """Return the broker's report of its replica, as soon as it hosts one."""
    while True:
        rows = (await stage.cluster.state()).answers[broker]["replicas"]
        for row in rows:
            if (row["topic"], row["partition"]) == tp:
                return dict(row)


def epochs_on_disk(stage: RealStage, broker: int, tp: TopicPartition = T0) -> list[tuple[int, int]]:
    """Return (leader epoch, start offset) of each epoch in the replica's checkpoint file."""
    directory = stage.cluster.directory.broker_data(broker) / str(tp)
    return list(epochs.decode((directory / epochs.FILE_NAME).read_bytes()))


@pytest.mark.row("A1", "C19", "E1", "F4", "H1", "I3", "J1", "X4")
async def test_killed_leader_is_replaced_by_the_first_live_replica_in_sync(
    stage: RealStage,
) -> None:
    controller, leader, follower, newcomer = Cast.of(stage)
    await stage.create("t", {0: (leader, follower, newcomer), 1: (newcomer, leader, follower)})
    await produce(stage, [b"a"] * 5)
    first, second = stage.leadership(T0), stage.leadership(T1)
    assert first is not None
    assert second is not None
    before = story(stage)
    await stage.kill(leader)
    assert leader in registered(stage), "nothing has closed its session"
    state = await has_state(stage, T0, follower, (follower, newcomer))
    assert registered(stage) == set(BROKERS) - {leader}
    other = await has_state(stage, T1, newcomer, (newcomer, follower))
    assert state.leader_epoch == first.leader_epoch + 1
    assert state.state_version == first.state_version + 1
    assert other.leader_epoch == second.leader_epoch + 1
    assert await consume(stage) == [b"a"] * 5
    found = story(stage).since(before).because_of("BrokersChanged")
    assert found.about(T0).moves() == [
        "partition Online > Offline",
        "partition Offline > Online",
        f"{leader} Online > Offline",
    ]
    assert found.about(T0).elections() == ["Offline"]
    assert ("set", layout.state_path(T0)) in found.writes()
    assert [kind for kind, to in found.requests() if to == follower][:2] == [
        "LeaderAndIsr",
        "UpdateMetadata",
    ]
    informed = {to for kind, to in found.requests() if kind == "UpdateMetadata"}
    assert informed == {controller, follower, newcomer}
    assert (follower, "leader") in found.became()


@pytest.mark.row("B4", "C14", "C16", "M5", "R39", "X18")
@pytest.mark.row("A15", "H2", "H3", "H4", "M1", "T3", "X3")
async def test_killed_brokers_keep_their_high_watermark_and_truncate_by_leader_epochs(
    stage: RealStage,
) -> None:
    """The records that only the killed leader had are lost, because the next election is unclean."""
    _, leader, follower, _ = Cast.of(stage)
    await stage.create("t", {0: (leader, follower)})
    await produce(stage, [b"a"] * 3)
    file = stage.cluster.directory.broker_data(follower) / "replication-offset-checkpoint"
    await stage.eventually(lambda: file.exists() and "t 0 3" in file.read_text().splitlines())
    await stage.kill(follower)
    await has_state(stage, T0, leader, (leader,))
    await produce(stage, [b"lost"] * 2)
    await stage.kill(leader)
    await has_state(stage, T0, -1, (leader,))

    await stage.start(follower)
    row = await replica(stage, follower)
    assert (row["leader"], row["high_watermark"], row["log_end_offset"]) == (-1, 3, 3)

    async with stage.client() as client:
        setting = {"unclean.leader.election.enable": "true"}
        await client.admin.alter_configs({Resource(ResourceType.TOPIC, "t"): setting})
    state = await has_state(stage, T0, follower, (follower,))
    await produce(stage, [b"b"])
    await stage.start(leader)
    await has_state(stage, T0, follower, (follower, leader))
    row = await replica(stage, leader)
    assert (row["role"], row["log_end_offset"]) == ("follower", 4)
    expected = [(0, 0), (state.leader_epoch, 3)]
    assert epochs_on_disk(stage, leader) == epochs_on_disk(stage, follower) == expected
    assert await consume(stage) == [b"a"] * 3 + [b"b"]
