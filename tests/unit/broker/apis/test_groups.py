"""The group APIs for members and administrators in every version, with a coordinator that only records calls."""

from __future__ import annotations

from typing import Any

import pytest
from support.brokers.cold import Cold, context, decoded, state
from support.brokers.group_recorder import exchange, parts_of
from support.kafka.entities import entity

from minikafka.base.coordinators import partition_of
from minikafka.base.errors import ErrorCode
from minikafka.base.names import GROUP_TOPIC, TRANSACTION_TOPIC
from minikafka.broker.apis.groups import find_coordinator
from minikafka.deciders.groups.commands import (
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedMember,
    DescribeGroupsResponse,
    HeartbeatResponse,
    JoinedMember,
    JoinResponse,
    LeaveResponse,
    LeftMember,
    ListedGroup,
    ListGroupsResponse,
    SyncResponse,
)
from minikafka.deciders.groups.events import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    LeavingMember,
    SyncRequest,
)
from minikafka.kafka.wire.versions import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    SYNC_GROUP,
)


def find(cold: Cold, version: int, *groups: str, **values: Any) -> list[Any]:
    """Send FindCoordinator; return the response's coordinators (one per group) after encoding and decoding."""
    keys = {"key": groups[0]} if version < 4 else {"coordinator_keys": groups}
    request = entity(FIND_COORDINATOR, version, **keys, **values)
    answer = find_coordinator(cold.services, request, context(version))
    answer = decoded(FIND_COORDINATOR, version, answer)
    return [answer] if version < 4 else list(answer.coordinators)


async def coordinating() -> Cold:
    """Return a cluster of brokers 1 to 3 in which broker n % 3 + 1 leads partition n of the offsets topic."""
    cold = Cold()
    cold.update(*(state(GROUP_TOPIC, n, (n % 3 + 1,)) for n in range(50)))
    return cold


@pytest.mark.parametrize("version", range(5))
async def test_coordinator_is_the_leader_of_the_partition_of_the_group(version: int) -> None:
    cold = await coordinating()
    for group in ("a", "b", "payments", "ünïcode 🎉"):
        (row,) = find(cold, version, group)
        leader = partition_of(group, 50) % 3 + 1
        node = cold.metadata.brokers[leader].node("PLAINTEXT")
        assert node is not None
        assert (row.error_code, row.node_id, row.host, row.port) == (
            0,
            leader,
            node.host,
            node.port,
        )


async def test_find_coordinator_answers_each_key_of_a_list() -> None:
    rows = find(await coordinating(), 4, "a", "b", "c", "b")
    assert [row.key for row in rows] == ["a", "b", "c"]
    assert {row.error_code for row in rows} == {0}


async def test_coordinator_is_not_available_when_its_offsets_partition_has_no_leader() -> None:
    cold = await coordinating()
    cold.update(*(state(GROUP_TOPIC, n, (1,), leader=-1) for n in range(50)))
    (row,) = find(cold, 4, "g")
    assert (row.error_code, row.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


@pytest.mark.parametrize("version", range(5))
async def test_coordinator_is_not_available_before_enough_brokers_are_live(version: int) -> None:
    cold = Cold(live=(1, 2))
    (row,) = find(cold, version, "g")
    assert (row.error_code, row.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    if version:
        assert "needs 3 live brokers" in row.error_message
    assert not cold.tasks.running


async def creation(cold: Cold) -> None:
    """Wait for the creation of topics that has begun."""
    while cold.tasks.running:
        cold.lead_what_is_created()
        await cold.clock.sleep(1)
        cold.tasks.running = [task for task in cold.tasks.running if not task.done()]


@pytest.mark.key(
    "offsets.topic.num.partitions",
    "offsets.topic.replication.factor",
    "offsets.topic.segment.bytes",
)
async def test_first_find_coordinator_creates_the_offsets_topic() -> None:
    settings = {
        "offsets.topic.num.partitions": 7,
        "offsets.topic.replication.factor": 2,
        "offsets.topic.segment.bytes": 1234,
    }
    cold = Cold(config=settings)
    (row,) = find(cold, 4, "g")
    assert row.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    find(cold, 4, "g")
    await creation(cold)
    states = cold.metadata.topics[GROUP_TOPIC]
    assert len(states) == 7
    assert {len(entry.replicas) for entry in states.values()} == {2}
    stored = cold.data(f"/config/topics/{GROUP_TOPIC}").decode()
    assert '"cleanup.policy":"compact"' in stored.replace(" ", "")
    assert '"segment.bytes":"1234"' in stored.replace(" ", "")
    (row,) = find(cold, 4, "g")
    assert not row.error_code


@pytest.mark.parametrize("version", range(1, 5))
@pytest.mark.parametrize("key_type", [2, -1])
async def test_find_coordinator_refuses_unknown_key_types(version: int, key_type: int) -> None:
    (row,) = find(await coordinating(), version, "tx", key_type=key_type)
    assert (row.error_code, row.node_id) == (ErrorCode.INVALID_REQUEST, -1)


@pytest.mark.parametrize("version", range(1, 7))
async def test_coordinator_of_a_transactional_id_leads_its_partition_of_the_topic(
    version: int,
) -> None:
    cold = Cold()
    cold.update(*(state(TRANSACTION_TOPIC, n, (n % 3 + 1,)) for n in range(50)))
    ids = ["tx", "", "another"] if version >= 4 else ["tx"]
    rows = find(cold, version, *ids, key_type=1)
    assert [row.node_id for row in rows] == [partition_of(name, 50) % 3 + 1 for name in ids]
    assert {int(row.error_code) for row in rows} == {0}


@pytest.mark.key(
    "transaction.state.log.num.partitions",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
    "transaction.state.log.segment.bytes",
)
async def test_first_transactional_id_creates_the_topic_with_the_settings_of_kafka() -> None:
    settings = {
        "transaction.state.log.num.partitions": 7,
        "transaction.state.log.replication.factor": 3,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.segment.bytes": 1234,
    }
    cold = Cold(config=settings)
    (row,) = find(cold, 4, "tx", key_type=1)
    assert row.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    await creation(cold)
    states = cold.metadata.topics[TRANSACTION_TOPIC]
    assert len(states) == 7
    assert {len(entry.replicas) for entry in states.values()} == {3}
    stored = cold.data(f"/config/topics/{TRANSACTION_TOPIC}").decode().replace(" ", "")
    for setting in (
        '"cleanup.policy":"compact"',
        '"compression.type":"uncompressed"',
        '"min.insync.replicas":"1"',
        '"segment.bytes":"1234"',
        '"unclean.leader.election.enable":"false"',
    ):
        assert setting in stored


@pytest.mark.parametrize("version", range(10))
def test_join_group_reaches_the_coordinator_with_the_fields_of_its_version(version: int) -> None:
    outcome = JoinResponse(
        0, "m", 4, "consumer", "range", "m", True, [JoinedMember("m", "i", b"x")]
    )
    asked, answer = exchange(
        Cold(),
        JOIN_GROUP,
        version,
        outcome,
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id="m",
        group_instance_id="i",
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b"x"}, {"name": "sticky", "metadata": b"y"}],
        reason="because",
    )
    assert asked == JoinRequest(
        "g",
        "m",
        "i" if version >= 5 else None,
        "tester",
        "/10.1.2.3",
        10_000,
        60_000 if version >= 1 else 10_000,
        "consumer",
        [("range", b"x"), ("sticky", b"y")],
        None,
        "because" if version >= 8 else None,
        version >= 4,
        version >= 9,
    )
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 4, "range")
    assert (answer.leader, answer.member_id, answer.members[0].metadata) == ("m", "m", b"x")
    assert answer.protocol_type == ("consumer" if version >= 7 else None)
    assert answer.skip_assignment == (version >= 9)


@pytest.mark.parametrize("version", range(10))
def test_refused_join_response_has_no_protocol_name(version: int) -> None:
    outcome = JoinResponse(int(ErrorCode.UNKNOWN_MEMBER_ID), "m")
    _, answer = exchange(Cold(), JOIN_GROUP, version, outcome, group_id="g")
    assert (answer.error_code, answer.generation_id) == (ErrorCode.UNKNOWN_MEMBER_ID, -1)
    assert answer.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", range(6))
def test_sync_group_reaches_the_coordinator_with_the_fields_of_its_version(version: int) -> None:
    asked, answer = exchange(
        Cold(),
        SYNC_GROUP,
        version,
        SyncResponse(0, "consumer", "range", b"mine"),
        group_id="g",
        generation_id=3,
        member_id="m",
        group_instance_id="i",
        protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": "m", "assignment": b"mine"}],
    )
    named = ("consumer", "range") if version >= 5 else (None, None)
    instance = "i" if version >= 3 else None
    assert asked == SyncRequest("g", 3, "m", None, instance, *named, [("m", b"mine")])
    assert (answer.error_code, answer.assignment) == (0, b"mine")


def test_sync_group_without_a_protocol_name_is_refused_from_version_5() -> None:
    asked, answer = exchange(Cold(), SYNC_GROUP, 5, None, group_id="g", protocol_type="consumer")
    assert asked is None
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", range(5))
def test_heartbeat_reaches_the_coordinator(version: int) -> None:
    asked, answer = exchange(
        Cold(),
        HEARTBEAT,
        version,
        HeartbeatResponse(27),
        group_id="g",
        generation_id=3,
        member_id="m",
        group_instance_id="i",
    )
    assert asked == HeartbeatRequest("g", 3, "m", None, "i" if version >= 3 else None)
    assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("version", range(6))
def test_leave_group_passes_one_or_several_members_to_the_coordinator(version: int) -> None:
    members = [
        {"member_id": "m", "group_instance_id": None, "reason": "closed"},
        {"member_id": "", "group_instance_id": "i", "reason": "closed"},
    ]
    outcome = LeaveResponse(0, [LeftMember("m", None, 25), LeftMember("", "i", 0)])
    asked, answer = exchange(
        Cold(), LEAVE_GROUP, version, outcome, group_id="g", member_id="m", members=members
    )
    reason = "closed" if version >= 5 else None
    both = [LeavingMember("m", None, reason), LeavingMember("", "i", reason)]
    assert asked == LeaveRequest("g", both if version >= 3 else [LeavingMember("m")], None)
    if version >= 3:
        rows = [(row.member_id, row.group_instance_id, row.error_code) for row in answer.members]
        assert (answer.error_code, rows) == (0, [("m", None, 25), ("", "i", 0)])
    else:
        assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(6))
def test_describe_groups_returns_members_with_their_instance_ids(version: int) -> None:
    member = DescribedMember("m", "i", "tester", "/10.1.2.3", b"meta", b"assigned")
    outcome = DescribeGroupsResponse(
        [
            DescribedGroup("g", 0, "Stable", "consumer", "range", [member]),
            DescribedGroup("h", int(ErrorCode.NOT_COORDINATOR)),
        ]
    )
    asked, answer = exchange(
        Cold(),
        DESCRIBE_GROUPS,
        version,
        outcome,
        groups=["g", "h", "g"],
        include_authorized_operations=True,
    )
    assert asked == DescribeGroupsRequest(["g", "h"], None)
    found, refused = answer.groups
    assert (found.group_state, found.protocol_type, found.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    (row,) = found.members
    assert (row.member_id, row.client_host, row.member_assignment) == (
        "m",
        "/10.1.2.3",
        b"assigned",
    )
    assert refused.error_code == ErrorCode.NOT_COORDINATOR
    if version >= 3:
        assert found.authorized_operations == 0b0001_0100_1000  # Read, Delete, Describe
    if version >= 4:
        assert row.group_instance_id == "i"


@pytest.mark.parametrize("version", range(5))
def test_list_groups_filters_by_state_from_version_4(version: int) -> None:
    outcome = ListGroupsResponse(0, [ListedGroup("g", "consumer", "Empty")])
    asked, answer = exchange(Cold(), LIST_GROUPS, version, outcome, states_filter=["Empty"])
    assert list(asked.states) == (["Empty"] if version >= 4 else [])
    (row,) = answer.groups
    assert (row.group_id, row.protocol_type) == ("g", "consumer")
    assert row.group_state == ("Empty" if version >= 4 else "")


@pytest.mark.parametrize("version", range(3))
def test_delete_groups_answers_each_group_once(version: int) -> None:
    outcome = DeleteGroupsResponse([("g", 0), ("h", 68)])
    asked, answer = exchange(Cold(), DELETE_GROUPS, version, outcome, groups_names=["g", "h", "g"])
    assert asked == DeleteGroupsRequest(["g", "h"], None)
    rows = [(row.group_id, row.error_code) for row in answer.results]
    assert rows == [("g", 0), ("h", ErrorCode.NON_EMPTY_GROUP)]


# ---- large requests


class Counting:
    """A coordinator that answers each request with `outcome(request)`.

    The answer is sent at once. If `is_late` is True, the answer is sent when the test calls `answer`.
    """

    def __init__(self, outcome: Any, *, is_late: bool = False) -> None:
        self.sizes: list[int] = []
        self.outcome = outcome
        self.late: list[Any] | None = [] if is_late else None

    def handle(self, request: Any) -> None:
        self.sizes.append(len(request.members if hasattr(request, "members") else request[0]))
        if self.late is None:
            request.caller(self.outcome(request))
        else:
            self.late.append(request)

    def answer(self) -> None:
        assert self.late is not None
        for request in reversed(self.late):
            request.caller(self.outcome(request))


def test_leave_group_of_2000_members_reaches_the_coordinator_64_at_a_time() -> None:
    members = [{"member_id": f"m{n}", "group_instance_id": None} for n in range(2_000)]
    coordinator = Counting(
        lambda asked: LeaveResponse(0, [LeftMember(m.member_id, None, 25) for m in asked.members])
    )
    steps, answer = parts_of(Cold(), LEAVE_GROUP, 4, coordinator, group_id="g", members=members)
    assert (max(coordinator.sizes), steps > 60) == (64, True)
    assert [row.member_id for row in answer.members] == [f"m{n}" for n in range(2_000)]


def test_describe_groups_of_1000_groups_reaches_the_coordinator_64_at_a_time() -> None:
    names = [f"g{n}" for n in range(1_000)]
    coordinator = Counting(
        lambda asked: DescribeGroupsResponse([DescribedGroup(name, 16) for name in asked.group_ids])
    )
    steps, answer = parts_of(Cold(), DESCRIBE_GROUPS, 5, coordinator, groups=names)
    assert (max(coordinator.sizes), steps > 15) == (64, True)
    assert [row.group_id for row in answer.groups] == names


@pytest.mark.parametrize("is_late", [False, True])
def test_delete_groups_of_1000_groups_reaches_the_coordinator_64_at_a_time(is_late: bool) -> None:
    names = [f"g{n}" for n in range(1_000)]
    coordinator = Counting(
        lambda asked: DeleteGroupsResponse([(name, 69) for name in asked.group_ids]),
        is_late=is_late,
    )
    steps, answer = parts_of(Cold(), DELETE_GROUPS, 2, coordinator, groups_names=names)
    assert (max(coordinator.sizes), steps > 15) == (64, True)
    assert [row.group_id for row in answer.results] == names


@pytest.mark.parametrize(("count", "size"), [(101, 0), (2, 600_000)])
def test_join_with_too_many_protocols_or_too_much_metadata_is_refused(
    count: int, size: int
) -> None:
    protocols = [{"name": f"p{n}", "metadata": bytes(size)} for n in range(count)]
    asked, answer = exchange(
        Cold(), JOIN_GROUP, 3, None, group_id="g", member_id="m", protocols=protocols
    )
    assert asked is None
    assert (answer.error_code, answer.member_id) == (ErrorCode.INVALID_REQUEST, "m")
