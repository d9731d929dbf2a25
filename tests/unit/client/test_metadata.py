"""A client's metadata when brokers lag behind or fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from support.clients.stub_cluster import StubCluster

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.client import metadata as module
from minikafka.client.login import Connector
from minikafka.client.metadata import Metadata, NoBrokerAnswers, error_code
from minikafka.client.network import Network, parse_bootstrap
from minikafka.kafka.wire import versions
from minikafka.runtime.clock import SystemClock


@pytest.fixture
async def metadata(cluster: StubCluster) -> AsyncIterator[Metadata]:
    network = Network(Connector(cluster.transport), SystemClock(), "test")
    yield Metadata(network, parse_bootstrap(cluster.bootstrap))
    network.close()


async def test_known_leader_is_returned_without_a_request(
    cluster: StubCluster, metadata: Metadata
) -> None:
    cluster.create("t", [2])
    for _ in range(3):
        assert (await metadata.leader("t", 0)).node == 2
    assert len(cluster.asked(versions.METADATA)) == 1


async def test_cluster_counts_as_never_reached_only_if_all_connections_were_refused(
    cluster: StubCluster, metadata: Metadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REFRESH_TIMEOUT_MS", 50)
    cluster.silent = {1}
    for broker in (2, 3):
        await cluster.kill(broker)
    await _failing(metadata, was_never_reached=False)
    await cluster.kill(1)
    await _failing(metadata, was_never_reached=True)
    cluster.silent = set()
    await cluster.restart(2)
    await metadata.describe(())
    await cluster.kill(2)
    await _failing(metadata, was_never_reached=False)


async def _failing(metadata: Metadata, *, was_never_reached: bool) -> None:
    with pytest.raises(NoBrokerAnswers) as caught:
        await metadata.describe(())
    assert caught.value.was_never_reached == was_never_reached


async def test_concurrent_lookups_after_invalidation_share_one_refresh(
    cluster: StubCluster, metadata: Metadata
) -> None:
    cluster.create("t", [2])
    await metadata.leader("t", 0)
    cluster.lead("t", 0, 3)
    for _ in range(5):
        metadata.invalidate()
    leaders = await asyncio.gather(*(metadata.leader("t", 0) for _ in range(5)))
    assert {leader.node for leader in leaders} == {3}
    assert len(cluster.asked(versions.METADATA)) == 2


async def test_leader_with_an_older_epoch_does_not_replace_the_known_one(
    cluster: StubCluster, metadata: Metadata
) -> None:
    (partition,) = cluster.create("t", [1])
    partition.epoch = 5
    await metadata.leader("t", 0)
    cluster.known_by = {broker: {("t", 0): (3, 4)} for broker in (1, 2, 3)}
    metadata.invalidate()
    leader = await metadata.leader("t", 0)
    assert (leader.node, leader.leader_epoch) == (1, 5)


async def test_recreated_topic_replaces_the_known_one_despite_a_lower_epoch(
    cluster: StubCluster, metadata: Metadata
) -> None:
    (partition,) = cluster.create("t", [1])
    partition.epoch = 5
    await metadata.leader("t", 0)
    cluster.create("t", [2])
    cluster.topic_ids["t"] = bytes(15) + b"\2"
    metadata.invalidate()
    leader = await metadata.leader("t", 0)
    assert (leader.node, leader.leader_epoch) == (2, 1)


@pytest.mark.parametrize(
    ("topic", "partition", "code"),
    [
        ("none", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 0, ErrorCode.LEADER_NOT_AVAILABLE),
    ],
)
async def test_leader_lookup_raises_an_error_for_an_unknown_or_leaderless_partition(
    cluster: StubCluster, metadata: Metadata, topic: str, partition: int, code: ErrorCode
) -> None:
    cluster.create("t", [-1])
    with pytest.raises(KafkaError) as caught:
        await metadata.leader(topic, partition)
    assert caught.value.code is code


async def test_deleted_topic_is_forgotten_after_a_refresh(
    cluster: StubCluster, metadata: Metadata
) -> None:
    cluster.create("t", [1])
    await metadata.leader("t", 0)
    del cluster.topics["t"]
    metadata.invalidate()
    with pytest.raises(KafkaError):
        await metadata.leader("t", 0)
    cluster.create("t", [2])
    assert (await metadata.leader("t", 0)).node == 2


async def test_controller_lookup_raises_not_controller_when_there_is_no_controller(
    cluster: StubCluster, metadata: Metadata
) -> None:
    cluster.controller = -1
    with pytest.raises(KafkaError) as caught:
        await metadata.controller()
    assert caught.value.code is ErrorCode.NOT_CONTROLLER


def test_undefined_error_code_becomes_unknown_server_error() -> None:
    assert error_code(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error_code(9999) is ErrorCode.UNKNOWN_SERVER_ERROR


async def test_invalidation_during_a_slow_refresh_leads_to_another_refresh(
    cluster: StubCluster, metadata: Metadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("t", [1])
    await metadata.leader("t", 0)
    metadata.invalidate()
    answered = metadata._request

    async def slow(*arguments: object, **named: object) -> object:
        response = await answered(*arguments, **named)  # type: ignore[arg-type]
        cluster.lead("t", 0, 2)
        metadata.invalidate()
        return response

    monkeypatch.setattr(metadata, "_request", slow)
    await metadata.leader("t", 0)
    monkeypatch.setattr(metadata, "_request", answered)
    assert (await metadata.leader("t", 0)).node == 2


async def test_metadata_stay_stale_if_their_refresh_fails(
    cluster: StubCluster, metadata: Metadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("t", [1])
    await metadata.leader("t", 0)
    metadata.invalidate()

    async def failing(*_: object, **__: object) -> object:
        raise OSError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(metadata, "_request", failing)
        with pytest.raises(OSError, match="no answer"):
            await metadata.leader("t", 0)
    cluster.lead("t", 0, 2)
    assert (await metadata.leader("t", 0)).node == 2
