"""The table of watches, which is kept by path and by connection."""

from __future__ import annotations

import pytest
from support.zookeeper.state import Connection

from minikafka.zookeeper.server.core import watches
from minikafka.zookeeper.server.core.watches import ANY, ONE_SHOT, PERSISTENT, RECURSIVE, WatchTable


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
    assert table.by_client == {two: {"/a", "/a/b"}}
    assert table.remove("/a", two, ANY)
    table.drop(two)
    assert table.by_path == table.by_client == {}
    assert set(table.fire("/a/b")) == set()


def test_no_event_walks_up_its_path_after_the_last_recursive_watch_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table, one = WatchTable(), Connection()
    table.add("/a", one, RECURSIVE)
    table.add("/a", one, RECURSIVE)
    assert table.remove("/a", one, RECURSIVE)
    monkeypatch.setattr(watches, "parent_of", lambda path: pytest.fail(f"walked up from {path}"))
    assert table.fire("/a/b") == {}
