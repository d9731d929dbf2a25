"""A cluster elsewhere, whose brokers tell a user more or less."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import Node, TopicPartition
from minikafka.broker.rpc.messages import EXPLAIN, STATE
from minikafka.client.metadata import ClusterInfo, PartitionInfo, TopicInfo
from minikafka.runtime.clock import SystemClock
from minikafka.tools.console.observation.grid import HIGH_WATERMARK, LEADER, OFFLINE, PartitionGrid
from minikafka.tools.console.observation.members import RUNNING, UNREACHABLE, CommandOptions
from minikafka.tools.console.observation.remote_brokers import RemoteBrokers

NODES = {id_: Node(id_, "h", 9000 + id_, None) for id_ in (1, 2)}
DENIED = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no ACL lets the client describe it")


class StubClient:
    """A client of brokers 1 and 2. `answer`: what they answer to InspectBroker. `alive`: those in metadata."""

    def __init__(self) -> None:
        self.answer: Any = DENIED
        self.alive = dict(NODES)
        self.admin = SimpleNamespace(describe=self._describe)
        self.inspection = SimpleNamespace(ask=self._ask)
        self.log_offsets = SimpleNamespace(look_up_once=self._look_up)

    async def describe_cluster(self) -> ClusterInfo:
        return ClusterInfo("c", 1, self.alive)

    async def _describe(self, *, retries: bool) -> tuple[ClusterInfo, list[TopicInfo]]:
        partition = PartitionInfo(0, 1, 4, (1, 2), (1, 2), (), 0)
        return await self.describe_cluster(), [TopicInfo("t", b"", {0: partition})]

    async def _look_up(self, wanted: dict[TopicPartition, int]) -> tuple[dict[Any, int], Any]:
        return {tp: 7 if at == -1 else 2 for tp, at in wanted.items()}, {}

    async def _ask(self, *_: Any, **__: Any) -> list[bytes]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return [json.dumps(self.answer).encode()]

    async def close(self) -> None: ...


@pytest.fixture
def client() -> StubClient:
    return StubClient()


@pytest.fixture
def brokers(client: StubClient) -> RemoteBrokers:
    options = CommandOptions((), ("--bootstrap", "h:9001"), None)
    found = RemoteBrokers("h:9001", None, options, "alice", SystemClock())
    found._client = client  # type: ignore[assignment]
    found._read_ms = -10_000
    return found


@pytest.mark.parametrize(
    "refusal", [DENIED, KafkaError(ErrorCode.UNSUPPORTED_VERSION, "it does not know the request")]
)
async def test_user_without_the_right_sees_what_every_client_sees(
    brokers: RemoteBrokers, client: StubClient, refusal: KafkaError
) -> None:
    client.answer = refusal
    await brokers.members()
    grid = PartitionGrid()
    for id_ in (1, 2):
        grid.update(id_, (await brokers.ask(id_, STATE, {}))["replicas"])
    row = grid.rows["t-0"]
    assert (row[LEADER], row[HIGH_WATERMARK], row[OFFLINE]) == (1, 7, [])
    assert grid.sizes == {}
    with pytest.raises(KafkaError, match=refusal.detail):
        await brokers.ask(1, EXPLAIN, {})


async def test_nothing_is_said_about_a_condition_that_no_broker_tells(
    brokers: RemoteBrokers,
) -> None:
    await brokers.members()
    answers = {id_: await brokers.ask(id_, STATE, {}) for id_ in (1, 2)}
    with pytest.raises(KafkaError, match=DENIED.detail):
        await brokers.sights(answers)


async def test_right_that_is_granted_later_is_used(
    brokers: RemoteBrokers, client: StubClient
) -> None:
    await brokers.members()
    await brokers.ask(1, STATE, {})
    client.answer = {"session_state": "connected", "live_brokers": [1, 2], "controller_epoch": 3}
    assert (await brokers.ask(1, STATE, {}))["replicas"] == []
    await brokers.sights({1: client.answer | {"replicas": []}})


async def test_broker_that_no_broker_lists_is_unreachable_until_it_is_listed(
    brokers: RemoteBrokers, client: StubClient
) -> None:
    await brokers.members()
    await brokers.ask(1, STATE, {})
    for alive, state in (({1: NODES[1]}, UNREACHABLE), (NODES, RUNNING)) * 2:
        client.alive = dict(alive)
        brokers._read_ms = -10_000
        found = {one.id: one.state for one in await brokers.members()}
        assert found == {1: RUNNING, 2: state}
