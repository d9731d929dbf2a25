"""Descriptions of the metadata that a member changed when it joined again."""

from __future__ import annotations

import pytest
from support.deciders.group_world import subscription

from minikafka.deciders.groups.members import metadata_changes

A, B, AB = subscription("a"), subscription("b"), subscription("a", "b")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"range": A}, {"range": AB}, ["subscribes to b"]),
        ({"range": A}, {"range": B}, ["subscribes to b", "no longer subscribes to a"]),
        ({"range": A}, {"sticky": A}, ["added protocol sticky", "removed protocol range"]),
        (
            {"range": A, "sticky": A},
            {"sticky": A, "range": A},
            ["changed its preference of protocols"],
        ),
        (
            {"range": A},
            {"range": A + b"owned"},
            ["changed the owned partitions or the assignor's data of range"],
        ),
        (
            {"range": A},
            {"range": b"?"},
            ["changed the owned partitions or the assignor's data of range"],
        ),
        ({"range": A}, {"range": A}, []),
    ],
)
def test_metadata_changes_of_a_consumer_are_described(before, after, expected):
    assert metadata_changes(tuple(before.items()), tuple(after.items()), True) == expected


def test_metadata_of_another_protocol_type_is_not_read():
    changed = metadata_changes((("default", A),), (("default", AB),), False)

    assert changed == ["changed the metadata of default"]
