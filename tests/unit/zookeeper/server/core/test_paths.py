"""Which paths a server accepts in writes. Scenarios with other errors of a request are in `transcripts/`."""

from __future__ import annotations

import pytest
from support.zookeeper.state import Connection, World

from minikafka.zookeeper.messages import codes
from minikafka.zookeeper.messages.jute import ANYONE
from minikafka.zookeeper.messages.requests import CreateNode, DeleteNode, SetData


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def client(world: World) -> Connection:
    return world.connect()


@pytest.mark.parametrize(
    "name",
    [".", "..", "a//b", "a/", "\x01", "\x7f", "\x9f", "\ue000", "\uf8ff", "\ufff0", "\U00010000"],
)
def test_path_with_bad_syntax_is_refused(world: World, client: Connection, name: str) -> None:
    if "/" not in name:
        creation = CreateNode(codes.CREATE, f"/{name}", b"", ANYONE, 0)
        assert world.refusal(client, creation) == codes.BAD_ARGUMENTS
    assert world.refusal(client, SetData(f"/{name}", b"", -1)) == codes.BAD_ARGUMENTS


def test_path_with_a_zero_character_is_refused_before_anything_else(
    world: World, client: Connection
) -> None:
    creation = CreateNode(codes.CREATE, "/a\0", b"", None, 0)
    assert world.refusal(client, creation) == codes.BAD_ARGUMENTS
    assert world.refusal(client, DeleteNode("/a\0", -1)) == codes.BAD_ARGUMENTS


@pytest.mark.parametrize(
    "name", ["...", ".a", "a.", " ", "\xa0", "\ud7ff", "\uf900", "\uffef", "ä"]
)
def test_unusual_path_is_accepted(world: World, client: Connection, name: str) -> None:
    assert world.create(client, f"/{name}") == f"/{name}"


def test_read_of_a_path_with_a_control_character_finds_no_node(
    world: World, client: Connection
) -> None:
    assert world.refused_read(client, "/\x01") == codes.NO_NODE
