"""The state of a cluster, combined from the answers of its brokers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.clients.stub_cluster import StubCluster

from minikafka.base.model import TopicPartition
from minikafka.kafka.wire.versions import METADATA
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.runtime.transport import SocketTransport
from minikafka.tools.cluster.directory import BrokerRecord, ClusterDirectory, ClusterRecord
from minikafka.tools.cluster.observation import state as state_module
from minikafka.tools.cluster.observation.state import (
    active_controller,
    backlog_of,
    brokers_know,
    combine,
    is_disputed,
)

TP = TopicPartition("t", 0)


def answer(*replicas: dict[str, Any], controller: int = 1, epoch: int = 3) -> dict[str, Any]:
    return {
        "broker_epoch": 10,
        "controller_id": controller,
        "controller_epoch": epoch,
        "live_brokers": [1, 2, 3],
        "replicas": list(replicas),
    }


def replica(role: str, epoch: int, leader: int, isr: list[int], leo: int = 9) -> dict[str, Any]:
    return {
        "topic": "t",
        "partition": 0,
        "role": role,
        "leader": leader,
        "leader_epoch": epoch,
        "isr": isr,
        "replicas": [1, 2, 3],
        "log_end_offset": leo,
        "high_watermark": leo - 1,
        "last_stable_offset": leo - 2,
        "log_start_offset": 2,
        "size": 10 * leo,
        "earliest_timestamp": 1000,
        "compaction": None,
    }


def test_cluster_state_takes_partition_data_from_the_leader_and_not_a_follower() -> None:
    state = combine(
        {
            2: answer(replica("follower", 5, 1, [1, 2], leo=3)),
            1: answer(replica("leader", 5, 1, [1, 2, 3])),
        }
    )
    view = state.partitions[TP]
    assert (view.leader, view.isr, view.log_end_offset, view.high_watermark) == (1, (1, 2, 3), 9, 8)
    assert (view.log_start_offset, view.size, view.earliest_timestamp) == (2, 90, 1000)
    assert view.last_stable_offset == 7
    assert state.leader_of("t", 0) == 1
    assert state.has_isr("t", None)
    assert not state.has_isr("t", [1, 2])
    assert not state.has_isr("t", [])


def test_cluster_state_ignores_a_partition_leader_with_an_older_epoch() -> None:
    state = combine(
        {
            1: answer(replica("leader", 5, 1, [1, 2, 3]), epoch=3),
            2: answer(replica("leader", 6, 2, [2, 3]), controller=2, epoch=4),
        }
    )
    assert state.leader_of("t", 0) == 2
    assert (state.controller, state.controller_epoch) == (2, 4)


def test_leader_and_offsets_are_none_while_no_leader_answers() -> None:
    view = combine({2: answer(replica("follower", 5, 1, [1, 2]))}).partitions[TP]
    assert (view.leader, view.log_end_offset, view.high_watermark) == (None, None, None)
    assert view.isr == (1, 2)


def test_unknown_topic_has_no_isr() -> None:
    assert not combine({1: answer()}).has_isr("t", None)
    assert combine({1: answer()}).leader_of("t", 0) is None


def test_broker_is_not_serving_until_it_knows_the_controller_and_live_brokers() -> None:
    late = answer(controller=-1, epoch=-1) | {"live_brokers": []}
    assert combine({1: answer(), 2: late}).not_serving([1, 2, 3]) == [2, 3]
    assert combine({}).not_serving([1]) == [1]


def test_broker_serves_without_a_controller_in_the_mode_leaders() -> None:
    own = {id_: answer(controller=id_, epoch=-1) | {"coordination": "leaders"} for id_ in (1, 2, 3)}
    own[3]["live_brokers"] = [1, 2]
    state = combine(own)
    assert (state.controller, state.controller_epoch) == (None, None)
    assert state.not_serving([1, 2]) == []
    assert state.not_serving([1, 2, 3]) == [3]


def test_cluster_state_is_empty_when_no_broker_answers() -> None:
    state = combine({})
    assert (state.controller, state.controller_epoch, dict(state.partitions)) == (None, None, {})


@pytest.mark.parametrize(
    ("ids", "tp", "known"),
    [
        ([1, 2], TopicPartition("t", 0), True),
        ([1, 2], TopicPartition("t", 1), False),
        ([1], TopicPartition("never-made", 0), False),
        ([3], TopicPartition("never-made", 0), True),
        ([1, 3], TopicPartition("never-made", 0), True),
        ([], TopicPartition("t", 0), True),
    ],
)
async def test_partition_is_unknown_only_if_every_broker_answers_that_it_is_unknown(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ids: list[int],
    tp: TopicPartition,
    known: bool,
) -> None:
    directory = ClusterDirectory(tmp_path)
    monkeypatch.setattr(state_module, "NEW_TOPIC_MS", 50)
    cluster = await StubCluster(SocketTransport(None)).start()
    try:
        cluster.create("t", [-1])
        await cluster.kill(3)
        brokers = tuple(BrokerRecord(i, port, 0) for i, port in cluster.ports.items())
        assert (
            await brokers_know(
                directory, ClusterRecord(brokers, "z"), ids, tp, SystemClock(), SystemRng()
            )
            is known
        )
    finally:
        await cluster.close()


async def test_partition_is_known_if_a_broker_gets_its_metadata_during_the_check(
    tmp_path: Path,
) -> None:
    directory = ClusterDirectory(tmp_path)
    cluster = await StubCluster(SocketTransport(None)).start()
    try:
        brokers = tuple(BrokerRecord(i, port, 0) for i, port in cluster.ports.items())
        asked = asyncio.create_task(
            brokers_know(
                directory, ClusterRecord(brokers, "z"), [1], TP, SystemClock(), SystemRng()
            )
        )
        while not cluster.asked(METADATA):  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0)
        cluster.create("t", [-1])
        assert await asked
    finally:
        await cluster.close()


def test_partition_needs_a_leader_and_all_running_replicas_in_the_isr_to_be_in_sync() -> None:
    others = {2: answer(), 3: answer()}
    full = combine({1: answer(replica("leader", 5, 1, [1, 2, 3])), **others})
    assert full.not_in_sync([1, 2, 3]) == []
    behind = combine({1: answer(replica("leader", 5, 1, [1, 3])), **others})
    assert behind.not_in_sync([1, 2, 3]) == [TP]
    assert behind.not_in_sync([1, 3]) == []
    leaderless = combine({2: answer(replica("follower", 5, 1, [1, 2, 3]))})
    assert leaderless.not_in_sync([2, 3]) == [TP]
    assert leaderless.not_in_sync([4]) == []


def test_replica_of_a_broker_that_does_not_answer_is_not_in_sync() -> None:
    paused = combine({1: answer(replica("leader", 5, 1, [1, 2, 3])), 2: answer()})
    assert paused.not_in_sync([1, 2, 3]) == [TP]
    assert paused.not_in_sync([1, 2]) == []


def test_controller_is_the_claim_in_the_newest_epoch_that_any_broker_knows() -> None:
    def claims(epoch: int, *, is_controller: bool = True) -> dict[str, Any]:
        return {"is_controller": is_controller, "controller_epoch": epoch}

    answers = {1: claims(3), 2: claims(4), 3: claims(4, is_controller=False)}
    assert (active_controller(answers), is_disputed(answers)) == (2, True)
    assert active_controller(answers, elected=1) == 1
    assert active_controller(answers, elected=3) is None
    del answers[2]
    assert (active_controller(answers), is_disputed(answers)) == (None, True)
    assert active_controller({1: claims(3)}) == 1
    assert not is_disputed({1: claims(3), 3: claims(2, is_controller=False)})


def test_backlog_of_the_newest_controller_is_shown() -> None:
    old = {"controller_epoch": 3, "session_state": "connected", "backlog": {"1": 9}}
    new = {**old, "controller_epoch": 4, "backlog": {"1": 2}}
    assert backlog_of([old, new]) == {"1": 2}
