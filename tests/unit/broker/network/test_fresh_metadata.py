"""Requests to a broker whose mode reads the metadata on demand: the mode is asked, and may let the request wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from typing import Any

import pytest
from support.brokers.memory_mode import MemoryMode, MemoryState
from support.clients.group_client import GroupClient
from support.kafka.entities import entity

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import ErrorCode
from minikafka.base.model import ClusterMetadata
from minikafka.base.ports import ControlPlane, Gate, Ledger
from minikafka.broker.capabilities import Capabilities, CoordinationMode
from minikafka.broker.network import fresh_metadata
from minikafka.broker.network.fresh_metadata import NAMES_MAX, topics_of
from minikafka.broker.ports import BrokerPorts
from minikafka.client import NewTopic
from minikafka.client.login import Connector
from minikafka.client.network import Address, Network, request
from minikafka.kafka.wire import versions
from minikafka.simulation.cluster import MemoryCluster

GROUP_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
WAIT_MS = 10_000


class LazyState(MemoryState):
    """While `is_lazy`, broker 1 is not told of changes: it gets the metadata `behind` from its source."""

    is_lazy = False
    behind: ClusterMetadata | None = None

    def publish(self) -> None:
        before = self.orders.pop(1, None) if self.is_lazy else None
        super().publish()
        if before is not None:
            self.orders[1] = before
            roles = tuple(map(self.role, self.states))
            ids = tuple(self.topic_ids.items())
            self.behind = ClusterMetadata(1, roles, tuple(self.brokers.values()), ids)


class Source:
    """The MetadataSource of broker 1. `asked_of` has the topics of each request, and whether one was missing."""

    def __init__(self, state: LazyState) -> None:
        self.state = state
        self.asked_of: list[tuple[list[str] | None, bool]] = []
        self.is_stuck = False

    def asked(
        self, topics: Collection[str] | None, *, is_missing: bool
    ) -> asyncio.Future[bool] | None:
        self.asked_of.append((None if topics is None else list(topics), is_missing))
        if not is_missing:
            return None
        done = asyncio.get_running_loop().create_future()
        if not self.is_stuck:
            asyncio.get_running_loop().call_later(0.01, self.refresh, done)
        return done

    def refresh(self, done: asyncio.Future[bool]) -> None:
        if self.state.behind is not None:
            self.state.orders[1].update_metadata(self.state.behind, is_whole=True)
        done.set_result(True)


class LazyMode(MemoryMode):
    """The mode of one broker; broker 1 has a `Source`."""

    def __init__(self, broker_id: int, state: MemoryState, source: Source) -> None:
        super().__init__(broker_id, state)
        self.source = source if broker_id == 1 else None

    def capabilities(self, control_plane: ControlPlane, ledger: Ledger, gate: Gate) -> Capabilities:
        return replace(super().capabilities(control_plane, ledger, gate), metadata=self.source)


class LazyCluster(MemoryCluster):
    """Two brokers, of which broker 1 has a second source of metadata."""

    def __init__(self) -> None:
        super().__init__(
            brokers=2, offsets_topic_num_partitions=1, offsets_topic_replication_factor=1
        )
        self.state = LazyState()
        self.source = Source(self.state)

    def new_mode(self, config: BrokerConfig, ports: BrokerPorts) -> CoordinationMode:
        return LazyMode(config.broker_id, self.state, self.source)

    async def create(self, topic: str, replicas: tuple[int, ...] = (0,)) -> None:
        async with self.client() as client:
            await client.create_topics(NewTopic(topic, assignment={0: replicas}))
        self.source.asked_of.clear()

    async def ask_behind(self, api: int, body: Any) -> Any:
        """Send a request to broker 1 and return the response."""
        network = Network(Connector(self.transport), self.clock, "test")
        try:
            return await network.call(Address("127.0.0.1", 9093), api, WAIT_MS, body)
        finally:
            network.close()


@pytest.fixture
async def cluster() -> AsyncIterator[LazyCluster]:
    async with LazyCluster() as cluster:
        cluster.state.is_lazy = True
        yield cluster
        cluster.state.is_lazy = False


def metadata_request(*names: str) -> Any:
    topics = [{"name": name} for name in names]
    return request(versions.METADATA, topics=topics, allow_auto_topic_creation=False)


async def topic_of(cluster: LazyCluster, name: str) -> Any:
    answer = await cluster.ask_behind(versions.METADATA, metadata_request(name))
    return answer.topics[0]


async def test_metadata_request_for_a_new_topic_waits_for_newer_metadata(
    cluster: LazyCluster,
) -> None:
    await cluster.create("t")
    found = await topic_of(cluster, "t")
    assert (found.error_code, found.partitions[0].leader_id) == (0, 0)
    assert cluster.source.asked_of == [(["t"], True)]


async def test_request_for_known_topics_is_answered_at_once_and_the_mode_is_told(
    cluster: LazyCluster,
) -> None:
    await cluster.create("t")
    await topic_of(cluster, "t")
    cluster.source.is_stuck = True
    assert (await topic_of(cluster, "t")).error_code == 0
    assert cluster.source.asked_of[-1] == (["t"], False)


async def test_request_waits_for_at_most_a_second_if_no_newer_metadata_arrive(
    cluster: LazyCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fresh_metadata, "WAIT_MS", 20)
    cluster.source.is_stuck = True
    await cluster.create("t")
    found = await topic_of(cluster, "t")
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_offsets_of_a_new_topic_are_committed_at_a_coordinator_that_is_behind(
    cluster: LazyCluster,
) -> None:
    """A consumer fails for good when its coordinator does not know the topic."""
    await cluster.create(GROUP_TOPIC, (1,))
    body = request(versions.FIND_COORDINATOR, key_type=0, coordinator_keys=("g",))
    found = await cluster.ask_behind(versions.FIND_COORDINATOR, body)
    assert found.coordinators[0].node_id == 1
    await cluster.create("t")
    offset = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
    body = request(
        versions.OFFSET_COMMIT,
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[{"name": "t", "partitions": [offset]}],
    )
    error = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    while error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        answer = await cluster.ask_behind(versions.OFFSET_COMMIT, body)
        error = answer.topics[0].partitions[0].error_code
    assert error == 0


async def test_new_topic_is_added_to_a_transaction_at_a_coordinator_that_is_behind(
    cluster: LazyCluster,
) -> None:
    await cluster.create(TRANSACTION_TOPIC, (1,))
    user = GroupClient(cluster, "x")
    found = await user.send(9093, versions.FIND_COORDINATOR, key_type=1, coordinator_keys=("x",))
    assert found.coordinators[0].node_id == 1
    error = int(ErrorCode.NOT_COORDINATOR)
    async with asyncio.timeout(60):
        while error:  # until the coordinator has loaded its partition
            producer = await user.send(
                9093, versions.INIT_PRODUCER_ID, transactional_id="x", transaction_timeout_ms=60_000
            )
            error = producer.error_code
    await cluster.create("t")
    for asked in ([(["t"], True)], []):
        answer = await user.send(
            9093,
            versions.ADD_PARTITIONS_TO_TXN,
            3,
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[{"name": "t", "partitions": [0]}],
        )
        (topic,) = answer.results_by_topic_v3_and_below
        assert topic.results_by_partition[0].partition_error_code == 0
        assert cluster.source.asked_of == asked
        cluster.source.asked_of.clear()
    user.close()


async def test_mode_without_a_second_source_is_not_asked(cluster: LazyCluster) -> None:
    assert cluster.brokers[0].listener.handlers.maps[0] == {}
    assert cluster.brokers[1].listener.handlers.maps[0] != {}


ID = bytes(range(16))


@pytest.mark.parametrize(
    ("api", "version", "fields", "topics"),
    [
        (versions.METADATA, 0, {"topics": []}, None),
        (versions.METADATA, 9, {"topics": None}, None),
        (versions.METADATA, 9, {"topics": []}, []),
        (versions.METADATA, 12, {"topics": [{"name": None, "topic_id": ID}]}, [ID]),
        (versions.DELETE_TOPICS, 1, {"topic_names": ["a", "b"]}, ["a", "b"]),
        (versions.ELECT_LEADERS, 2, {"topic_partitions": None}, []),
        (versions.DESCRIBE_CLUSTER, 0, {}, []),
        (versions.FIND_COORDINATOR, 0, {"key": "g"}, [GROUP_TOPIC]),
        (
            versions.FIND_COORDINATOR,
            4,
            {"key_type": 1, "coordinator_keys": ("x",)},
            [TRANSACTION_TOPIC],
        ),
        (
            versions.ADD_PARTITIONS_TO_TXN,
            3,
            {
                "v3_and_below_transactional_id": "x",
                "v3_and_below_producer_id": 1,
                "v3_and_below_producer_epoch": 0,
                "v3_and_below_topics": [{"name": "t", "partitions": [0]}],
            },
            ["t"],
        ),
        (
            versions.DESCRIBE_CONFIGS,
            1,
            {
                "resources": [
                    {"resource_type": 2, "resource_name": "t"},
                    {"resource_type": 4, "resource_name": "1"},
                ]
            },
            ["t"],
        ),
        (
            versions.METADATA,
            4,
            {"topics": [{"name": f"t{number}"} for number in range(NAMES_MAX + 1)]},
            None,
        ),
    ],
)
def test_topics_that_a_request_needs_are_found(
    api: int, version: int, fields: dict[str, Any], topics: list[Any] | None
) -> None:
    assert topics_of(api, entity(api, version, **fields), version) == topics
