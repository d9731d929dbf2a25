"""The ZooKeeper session of a controller term. No read of the term is repeated in a later session."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from minikafka.base.errors import NotConnected, StaleSession
from minikafka.base.ports import Znode
from minikafka.broker.modes.controller.terms.term_session import TermSession
from minikafka.simulation.zookeeper import ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient


async def test_zookeeper_read_is_not_repeated_in_a_later_session() -> None:
    zookeeper = InMemoryClient(ZooKeeperInMemory())
    await zookeeper.attach()
    session = TermSession(zookeeper, zookeeper.generation, 0)
    reads: list[Sequence[str]] = []

    async def get_many(paths: Sequence[str]) -> list[Znode | None]:
        reads.append(paths)
        if len(reads) > 1:
            return [None]
        await zookeeper.expire()
        await zookeeper.attach()
        raise NotConnected

    zookeeper.get_many = get_many  # type: ignore[method-assign]
    with pytest.raises(StaleSession):
        await session.get_many(["/a"])
    assert reads == [["/a"]], "a read in the new session would set watches for a term that is over"
