"""The ledger lines of a request's life, word for word as the design page prints them (C38)."""

from __future__ import annotations

import pytest
from support.deciders.leaders_views import request

from minikafka.base.model import TopicPartition
from minikafka.deciders.leaders import notes
from minikafka.deciders.leaders.model import Operation, StateChange

FOO = StateChange(Operation.START, TopicPartition("foo", 0), bytes(16), 10, 0)


@pytest.mark.row("C38")
def test_lines_of_a_request_are_those_of_the_page() -> None:
    assert [
        notes.requested(FOO, 1).text,
        notes.received(FOO, 1).text,
        notes.completed(FOO, 1).text,
    ] == [
        "leader, broker id 0, requested start-replica for topic foo partition 0, "
        "to broker id 1, at epoch 10",
        "follower, broker id 1, received start-replica for topic foo partition 0, "
        "from leader 0, at epoch 10",
        "follower, broker id 1, completed start-replica for topic foo partition 0, "
        "request from leader 0, at epoch 10",
    ]


def test_refused_request_has_a_line_with_the_reason() -> None:
    assert notes.refused(FOO, 2, "it is stale").text == (
        "follower, broker id 2, refused start-replica for topic foo partition 0, "
        "request from leader 0, at epoch 10: it is stale"
    )


def test_request_of_an_administrator_names_no_leader() -> None:
    change = request(Operation.CLOSE)
    assert notes.requested(change, 3).text == (
        "administrator, requested close-replica for topic t partition 0, to broker id 3, at epoch -1"
    )
    assert notes.received(change, 3).text == (
        "follower, broker id 3, received close-replica for topic t partition 0, "
        "from the administrator, at epoch -1"
    )


def test_rescan_names_no_partition() -> None:
    change = StateChange(Operation.RESCAN, TopicPartition("", -1), None, -1, -1)
    assert notes.completed(change, 3).text == (
        "follower, broker id 3, completed rescan, request from the administrator, at epoch -1"
    )


def test_fields_of_a_line_say_who_asked_whom() -> None:
    note = notes.received(FOO, 1)
    assert note.tp == TopicPartition("foo", 0)
    assert note.fields == {
        "kind": "received",
        "operation": "start-replica",
        "sender": 0,
        "receiver": 1,
        "epoch": 10,
    }
