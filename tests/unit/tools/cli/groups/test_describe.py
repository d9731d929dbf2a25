"""Groups as tables and as JSON."""

from __future__ import annotations

import pytest

from minikafka.base.model import Node, TopicPartition
from minikafka.client.administration.group_admin import GroupDescription, MemberDescription
from minikafka.tools.cli.groups.describe import (
    STATE,
    OffsetRow,
    assignment_text,
    member_columns,
    offset_columns,
    remark,
)
from minikafka.tools.cli.terminal.columns import lines, objects

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MEMBER = MemberDescription("c-1", None, "c", "/10.0.0.1", (T0, T1))
STATIC = MemberDescription("i-1", "i", "c", "/10.0.0.2", ())
NODE = Node(2, "host", 9092, None)


def group(state: str = "Stable", *members: MemberDescription) -> GroupDescription:
    return GroupDescription("g", state, "consumer", "range" if members else "", NODE, members)


def test_group_offsets_have_kafkas_columns_and_dashes_for_unknown_values() -> None:
    rows = [
        OffsetRow(T0, 4, 10, MEMBER),
        OffsetRow(T1, None, 3, MEMBER),
        OffsetRow(T1, 2, None, None),
    ]
    assert list(lines(offset_columns("g"), rows)) == [
        "GROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG             "
        "CONSUMER-ID     HOST            CLIENT-ID",
        "g               t               0          4               10              6               "
        "c-1             /10.0.0.1       c",
        "g               t               1          -               3               -               "
        "c-1             /10.0.0.1       c",
        "g               t               1          2               -               -               "
        "-               -               -",
    ]


def member_lines(found: GroupDescription, *, verbose: bool) -> list[str]:
    return list(lines(member_columns(found, verbose=verbose), found.members))


def test_members_have_an_instance_column_only_if_one_is_static() -> None:
    assert member_lines(group("Stable", MEMBER), verbose=False) == [
        "GROUP           CONSUMER-ID     HOST            CLIENT-ID       #PARTITIONS",
        "g               c-1             /10.0.0.1       c               2",
    ]
    assert member_lines(group("Stable", MEMBER, STATIC), verbose=True) == [
        "GROUP           CONSUMER-ID     GROUP-INSTANCE-ID HOST            CLIENT-ID       "
        "#PARTITIONS     ASSIGNMENT",
        "g               c-1                               /10.0.0.1       c               "
        "2               t(0,1)",
        "g               i-1             i                 /10.0.0.2       c               "
        "0               -",
    ]


def test_group_state_is_shown_with_coordinator_and_assignor() -> None:
    assert list(lines(STATE, [group("Stable", MEMBER)])) == [
        "GROUP           COORDINATOR (ID)          ASSIGNMENT-STRATEGY  STATE                #MEMBERS",
        "g               host:9092  (2)            range                Stable               1",
    ]
    assert "-                    Empty" in list(lines(STATE, [group("Empty")]))[1]


def test_assigned_partitions_are_printed_sorted_and_grouped_by_topic() -> None:
    assert assignment_text([T1, TopicPartition("a", 3), T0]) == "a(3), t(0,1)"


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("Empty", "Consumer group 'g' has no active members."),
        ("PreparingRebalance", "Warning: Consumer group 'g' is rebalancing."),
        ("CompletingRebalance", "Warning: Consumer group 'g' is rebalancing."),
        ("Stable", None),
    ],
)
def test_group_state_that_needs_attention_has_a_remark(state: str, text: str | None) -> None:
    assert remark(group(state)) == text


def test_group_json_has_null_for_unknown_values() -> None:
    rows = [OffsetRow(T0, 4, 10, MEMBER), OffsetRow(T1, None, None, None)]
    known, unknown = objects(offset_columns("g"), rows)
    assert (known["lag"], known["consumer_id"], known["host"]) == (6, "c-1", "/10.0.0.1")
    assert set(unknown.values()) == {"t", 1, None}
    found = group("Stable", STATIC, MEMBER)
    members = objects(member_columns(found, verbose=False), found.members)
    assert members[0]["group_instance_id"] == "i"
    assert members[1]["partitions"][1] == {"topic": "t", "partition": 1}
    assert objects(STATE, [group("Empty")])[0] == {
        "group": "g",
        "coordinator": {"id": 2, "host": "host", "port": 9092},
        "assignment_strategy": None,
        "state": "Empty",
        "members": 0,
    }
