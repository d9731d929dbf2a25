"""The access control lists of a cluster with `zookeeper.set.acl`."""

from __future__ import annotations

import pytest

from minikafka.zookeeper.messages.jute import ANYONE
from minikafka.zookeeper.nodes import layout
from minikafka.zookeeper.nodes.secure_nodes import CREATOR, CREATOR_AND_READERS, secure_acl


@pytest.mark.parametrize(
    "path",
    ["/config/users", "/config/users/alice", "/config/brokers/1", "/delegation_token/tokens/t"],
)
def test_nodes_with_secrets_are_read_by_their_creators_alone(path: str) -> None:
    assert secure_acl(path) == CREATOR == ((31, "auth", ""),)


@pytest.mark.parametrize(
    "path",
    [
        "/config",
        "/config/topics/a",
        "/delegation_token",
        "/kafka-acl",
        "/consumers/group",
        "/leaders",
    ],
)
def test_other_nodes_are_read_by_everybody(path: str) -> None:
    assert secure_acl(path) == CREATOR_AND_READERS == ((31, "auth", ""), (1, "world", "anyone"))


def test_node_of_old_consumers_is_open() -> None:
    assert secure_acl("/consumers") is ANYONE


def test_every_node_of_the_start_has_a_list() -> None:
    assert {secure_acl(path) for path in layout.PERSISTENT} == {
        ANYONE,
        CREATOR,
        CREATOR_AND_READERS,
    }
