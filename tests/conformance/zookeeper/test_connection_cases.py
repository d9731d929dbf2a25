"""Limits and life of a connection: each case ends equally on Apache ZooKeeper and on minikafka's own server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from support.zookeeper.cases import CASES, DIFFERENT, SILENT, run
from support.zookeeper.pair import Pair, running_pair


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    context = running_pair(tmp_path_factory.mktemp("pair"))
    with asyncio.Runner() as runner:
        running = runner.run(context.__aenter__())
        try:
            yield running
        finally:
            runner.run(context.__aexit__(None, None, None))


@pytest.mark.parametrize("name", CASES)
def test_connection_ends_as_with_apache_zookeeper(pair: Pair, name: str) -> None:
    apache, embedded = (run(CASES[name], port) for port in pair.ports)
    assert embedded == apache


@pytest.mark.parametrize("name", DIFFERENT)
def test_deliberate_difference_from_apache_zookeeper(pair: Pair, name: str) -> None:
    case, expected = DIFFERENT[name]
    assert run(case, pair.embedded.port) == expected
    if name not in SILENT:
        assert run(case, pair.apache.port) != expected, "there is no difference any more"
