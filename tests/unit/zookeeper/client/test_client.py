"""Parsing of connect strings, and reads of many nodes."""

from __future__ import annotations

import pytest

from minikafka.simulation.zookeeper import ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.zookeeper.client.client import MANY_BYTES, MANY_PATHS, _chunks, parse_connect


@pytest.mark.parametrize(
    ("connect", "servers", "chroot"),
    [
        ("h:1", [("h", 1)], ""),
        ("h", [("h", 2181)], ""),
        ("h:1,i:2", [("h", 1), ("i", 2)], ""),
        ("h:1, i:2/kafka", [("h", 1), ("i", 2)], "/kafka"),
        ("h:1/a/b", [("h", 1)], "/a/b"),
        ("h:1/", [("h", 1)], ""),
        ("[::1]:5,[fe80::2]", [("::1", 5), ("fe80::2", 2181)], ""),
    ],
)
def test_connect_string_is_parsed_into_servers_and_chroot(
    connect: str, servers: list[tuple[str, int]], chroot: str
) -> None:
    assert parse_connect(connect) == (servers, chroot)


def test_paths_of_a_multi_read_are_split_by_number_and_by_bytes() -> None:
    paths = [f"/{number}" for number in range(2 * MANY_PATHS + 1)]
    chunks = list(_chunks(paths))
    assert [len(chunk) for chunk in chunks] == [MANY_PATHS, MANY_PATHS, 1]
    assert [path for chunk in chunks for path in chunk] == paths
    long = "/" + "x" * (MANY_BYTES // 2)
    assert [len(chunk) for chunk in _chunks([long] * 3)] == [1, 1, 1]
    assert list(_chunks([])) == []


async def test_many_large_nodes_are_read_although_one_answer_would_be_too_long(
    watched_loop: None,
) -> None:
    zookeeper = ZooKeeperInMemory()
    paths = [f"/{number:02}" for number in range(20)]
    for path in paths:
        zookeeper.put(path, path.encode() * 300_000)
    client = InMemoryClient(zookeeper)
    await client.start()
    found = await client.get_many(paths)
    assert [answer and answer[0][:3].decode() for answer in found] == paths
