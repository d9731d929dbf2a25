"""Admin requests about groups, also while group coordinators move."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from support.clients.stub_groups import StubGroups

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.client import Client, OffsetAndMetadata, Outcome
from minikafka.client.administration.group_admin import GroupListing
from minikafka.kafka.wire import versions
from minikafka.simulation.transport import MemoryTransport

T0 = TopicPartition("t", 0)
DONE = Outcome(ErrorCode.NONE)


@pytest.fixture
async def cluster() -> AsyncIterator[StubGroups]:
    cluster = StubGroups(MemoryTransport())
    await cluster.start()
    yield cluster
    await cluster.close()


async def test_consumer_groups_of_all_brokers_are_listed_in_order(
    cluster: StubGroups, client: Client
) -> None:
    cluster.listed = {
        1: [("g2", "consumer", "Stable"), ("c", "connect", "Stable")],
        3: [("g1", "", "Empty")],
    }
    assert await client.groups.list_groups() == [
        GroupListing("g1", "", "Empty"),
        GroupListing("g2", "consumer", "Stable"),
    ]
    cluster.failures[versions.LIST_GROUPS].append(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert len(await client.groups.list_groups()) == 2


async def test_single_name_is_one_group_and_a_single_partition_one_partition(
    cluster: StubGroups, client: Client
) -> None:
    assert list(await client.groups.describe("g-x")) == ["g-x"]
    assert list(await client.groups.delete("g-x")) == ["g-x"]
    assert await client.groups.list_groups("Stable") == []
    cluster.committed = {T0: OffsetAndMetadata(7)}
    assert list(await client.groups.offsets("g", T0)) == [T0]
    assert list(await client.groups.delete_offsets("g", T0)) == [T0]
    with pytest.raises(TypeError, match="expected TopicPartition"):
        await client.groups.offsets("g", ["t-0"])


async def test_groups_are_described_with_the_partitions_of_their_members(
    cluster: StubGroups, client: Client
) -> None:
    share = ConsumerProtocolMemberAssignment(0, [("t", [0])], b"").encode()
    cluster.members = {"g": [("m-1", "consumer", share)], "odd": [("m-2", "consumer", b"\0")]}
    cluster.failures[versions.DESCRIBE_GROUPS].append(ErrorCode.NOT_COORDINATOR)
    found = await client.groups.describe(["g", "odd", "g"])
    assert list(found) == ["g", "odd"]
    assert found["g"].coordinator.id == 1
    assert [member.partitions for member in found["g"].members] == [(T0,)]
    assert [member.partitions for member in found["odd"].members] == [()]


async def test_deleting_two_groups_returns_an_outcome_for_each(
    cluster: StubGroups, client: Client
) -> None:
    cluster.refused = {"busy": ErrorCode.NON_EMPTY_GROUP}
    assert await client.groups.delete(["idle", "busy"]) == {
        "idle": DONE,
        "busy": Outcome(ErrorCode.NON_EMPTY_GROUP),
    }


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
)
async def test_group_offsets_are_altered_and_read_after_the_coordinator_moved(
    cluster: StubGroups, client: Client, code: ErrorCode
) -> None:
    cluster.failures[versions.OFFSET_COMMIT].append(code)
    cluster.failures[versions.OFFSET_FETCH].append(code)
    cluster.generation = -1
    assert await client.groups.alter_offsets("g", {T0: 5}) == {T0: DONE}
    assert await client.groups.offsets("g", [T0]) == {T0: OffsetAndMetadata(5)}
    assert await client.groups.alter_offsets("g", {}) == {}


async def test_refused_partition_of_a_group_request_has_its_error_code(
    cluster: StubGroups, client: Client
) -> None:
    cluster.has_members = True
    outcomes = await client.groups.alter_offsets("g", {T0: OffsetAndMetadata(5, "note")})
    assert outcomes == {T0: Outcome(ErrorCode.UNKNOWN_MEMBER_ID)}


async def test_deleting_offsets_of_an_unknown_group_raises_group_id_not_found(
    cluster: StubGroups, client: Client
) -> None:
    cluster.failures[versions.OFFSET_DELETE].append(ErrorCode.GROUP_ID_NOT_FOUND)
    with pytest.raises(KafkaError) as caught:
        await client.groups.delete_offsets("g", [T0])
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert await client.groups.delete_offsets("g", [T0]) == {T0: DONE}


async def test_group_request_fails_at_the_api_timeout_when_no_coordinator_is_found(
    cluster: StubGroups,
) -> None:
    cluster.failures[versions.FIND_COORDINATOR] += [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 20
    async with Client(cluster.bootstrap, transport=cluster.transport, api_timeout_ms=800) as client:
        with pytest.raises(KafkaError, match="group g: no broker is its coordinator at the moment"):
            await client.groups.offsets("g")
