"""Watches: which events reach which connection, and in which order."""

from __future__ import annotations

from contextlib import suppress

import pytest
from support.zookeeper_state import Connection, World

from minikafka.zk.core import codes
from minikafka.zk.core.acl import ANYONE, WRITE, Acl
from minikafka.zk.core.codes import Refused
from minikafka.zk.core.watches import ANY, ONE_SHOT, PERSISTENT, RECURSIVE, WatchTable

CREATED, DELETED = codes.NODE_CREATED, codes.NODE_DELETED
CHANGED, CHILDREN = codes.DATA_CHANGED, codes.CHILDREN_CHANGED
UNREADABLE: Acl = ((WRITE, "world", "anyone"),)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def client(world: World) -> Connection:
    return world.connect()


def test_watch_fires_once(world: World, client: Connection) -> None:
    world.create(client, "/a")
    world.state.data(client, "/a", watch=True)
    world.set(client, "/a")
    world.set(client, "/a")
    assert client.events == [(CHANGED, "/a", 3)]


def test_two_watches_of_one_connection_on_a_path_give_one_event(
    world: World, client: Connection
) -> None:
    world.create(client, "/a")
    world.state.data(client, "/a", watch=True)
    world.state.exists(client, "/a", watch=True)
    world.state.children(client, "/a", watch=True)
    world.delete(client, "/a")
    assert client.seen() == [(DELETED, "/a")]


def test_exists_watches_a_missing_node(world: World, client: Connection) -> None:
    with pytest.raises(Refused):
        world.state.exists(client, "/a", watch=True)
    world.create(client, "/a")
    assert client.seen() == [(CREATED, "/a")]


def test_reads_of_a_missing_node_set_no_watch(world: World, client: Connection) -> None:
    for read in (world.state.data, world.state.children):
        with pytest.raises(Refused):
            read(client, "/a", watch=True)
    world.create(client, "/a")
    assert client.seen() == []


def test_child_watch_fires_for_creations_and_deletions_of_children(
    world: World, client: Connection
) -> None:
    world.create(client, "/a")
    world.state.children(client, "/a", watch=True)
    world.create(client, "/a/b")
    world.state.children(client, "/a", watch=True)
    world.set(client, "/a/b")
    world.delete(client, "/a/b")
    assert client.seen() == [(CHILDREN, "/a"), (CHILDREN, "/a")]


def test_deletion_is_sent_before_the_change_of_the_parents_children(
    world: World, client: Connection
) -> None:
    world.create(client, "/a")
    world.state.children(client, "/", watch=True)
    world.state.data(client, "/a", watch=True)
    world.delete(client, "/a")
    assert client.seen() == [(DELETED, "/a"), (CHILDREN, "/")]


def test_setting_an_acl_fires_nothing(world: World, client: Connection) -> None:
    world.state.add_watch(client, "/", 1)
    world.create(client, "/a")
    client.seen()
    world.set_acl(client, "/a", ANYONE)
    assert client.seen() == []


def test_persistent_watch_stays_and_is_told_about_children(
    world: World, client: Connection
) -> None:
    world.create(client, "/a")
    world.state.add_watch(client, "/a", 0)
    world.create(client, "/a/b")
    world.create(client, "/a/b/c")
    world.set(client, "/a")
    world.set(client, "/a")
    assert client.seen() == [(CHILDREN, "/a"), (CHANGED, "/a"), (CHANGED, "/a")]


def test_recursive_watch_gets_no_events_about_children(world: World, client: Connection) -> None:
    world.state.add_watch(client, "/a", 1)
    world.create(client, "/a")
    world.create(client, "/a/b")
    world.set(client, "/a/b")
    world.create(client, "/ab")
    world.delete(client, "/a/b")
    assert client.seen() == [
        (CREATED, "/a"),
        (CREATED, "/a/b"),
        (CHANGED, "/a/b"),
        (DELETED, "/a/b"),
    ]


def test_unknown_mode_of_watch_is_refused(world: World, client: Connection) -> None:
    for call in (world.state.add_watch, world.state.check_watch, world.state.remove_watch):
        with pytest.raises(Refused) as refused:
            call(client, "/", 9)
        assert refused.value.code == codes.MARSHALLING_ERROR


def test_event_goes_to_connections_that_may_read_the_node(world: World, client: Connection) -> None:
    world.create(client, "/a")
    world.state.data(client, "/a", watch=True)
    world.set_acl(client, "/a", UNREADABLE)
    world.set(client, "/a")
    assert client.seen() == []


@pytest.mark.parametrize(
    ("kind", "left"),
    [
        (1, [(CREATED, "/b"), (DELETED, "/b")]),
        (2, [(CHILDREN, "/")]),
        (3, []),
    ],
)
def test_removing_watches_of_a_kind_leaves_the_others(
    world: World, client: Connection, kind: int, left: list[object]
) -> None:
    for path in ("/", "/b"):
        if path == "/":
            world.state.children(client, path, watch=True)
        else:
            world.state.set_watches(client, 0, (), (path,), ())
    for path in ("/", "/b"):
        with suppress(Refused):
            world.state.remove_watch(client, path, kind)
    world.create(client, "/b")
    if kind == 1:
        world.state.data(client, "/b", watch=True)
        world.delete(client, "/b")
    assert client.seen() == left


def test_removed_persistent_watch_is_gone_from_both_tables(
    world: World, client: Connection
) -> None:
    world.state.add_watch(client, "/", 0)
    world.state.check_watch(client, "/", 4)
    world.state.remove_watch(client, "/", 4)
    assert len(world.state.data_watches) == len(world.state.child_watches) == 0
    for call in (world.state.check_watch, world.state.remove_watch):
        with pytest.raises(Refused) as refused:
            call(client, "/", 4)
        assert refused.value.code == codes.NO_WATCHER


def test_reconnected_client_is_told_what_it_missed(world: World, client: Connection) -> None:
    for path in ("/changed", "/same", "/parent", "/quiet"):
        world.create(client, path)
    seen = world.state.zxid
    world.set(client, "/changed")
    world.create(client, "/parent/child")
    world.create(client, "/appeared")
    world.state.set_watches(
        client,
        seen,
        data=["/changed", "/same", "/gone"],
        exists=["/appeared", "/missing"],
        children=["/parent", "/quiet", "/gone"],
    )
    assert client.events == [
        (CHANGED, "/changed", -1),
        (DELETED, "/gone", -1),
        (CREATED, "/appeared", -1),
        (CHILDREN, "/parent", -1),
        (DELETED, "/gone", -1),
    ]


def test_reconnected_clients_watches_work_as_before(world: World, client: Connection) -> None:
    world.create(client, "/same")
    world.state.set_watches(
        client,
        world.state.zxid,
        data=["/same"],
        exists=["/missing"],
        children=["/same"],
        persistent=["/kept"],
        recursive=["/deep"],
    )
    for path in ("/missing", "/kept", "/deep", "/deep/er", "/same/child"):
        world.create(client, path)
    world.set(client, "/same")
    assert client.seen() == [
        (CREATED, "/missing"),
        (CREATED, "/kept"),
        (CREATED, "/deep"),
        (CREATED, "/deep/er"),
        (CHILDREN, "/same"),
        (CHANGED, "/same"),
    ]


def test_watches_end_with_their_connection(world: World, client: Connection) -> None:
    watcher = world.connect()
    world.state.children(watcher, "/", watch=True)
    world.state.add_watch(watcher, "/", 0)
    world.state.add_watch(watcher, "/a", 1)
    world.state.drop(watcher)
    world.create(client, "/a")
    assert watcher.events == []
    assert len(world.state.data_watches) == len(world.state.child_watches) == 0
    assert watcher.session_id in world.state.sessions.open


def test_later_connection_of_a_session_keeps_it_when_the_older_one_ends(world: World) -> None:
    old = world.connect()
    session = world.state.sessions.open[old.session_id]
    session.connection = new = Connection(session.id)
    world.state.drop(old)
    assert session.connection is new


def test_both_sides_of_a_table_of_watches_agree() -> None:
    table = WatchTable()
    one, two = Connection(), Connection()
    for path in ("/a", "/a/b"):
        table.add(path, one, ONE_SHOT)
        table.add(path, one, RECURSIVE)
        table.add(path, two, PERSISTENT)
    assert table.remove("/a", one, ONE_SHOT)
    assert not table.remove("/a", one, ONE_SHOT)
    assert set(table.fire("/a/b")) == {one, two}
    assert table.has("/a/b", one, RECURSIVE)
    assert not table.has("/a/b", one, ONE_SHOT)
    table.drop(one)
    assert table.by_path == {"/a": {two: PERSISTENT}, "/a/b": {two: PERSISTENT}}
    assert table.by_connection == {two: {"/a", "/a/b"}}
    assert table.remove("/a", two, ANY)
    table.drop(two)
    assert table.by_path == table.by_connection == {}
    assert set(table.fire("/a/b")) == set()
