"""A ZooKeeper session for one command."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from minikafka.base.errors import CoordinationError, ZooKeeperLoginRefused
from minikafka.base.ports import Clock, Rng, ZooKeeper
from minikafka.runtime.tasks import TaskRegistry
from minikafka.runtime.transport import SocketTransport
from minikafka.tools.cluster.directory import ClusterDirectory, ClusterError, ClusterRecord
from minikafka.tools.cluster.zookeeper.access import access_of_cluster
from minikafka.zookeeper.client.access import OPEN_ACCESS, ZooKeeperAccess

_SESSION_TIMEOUT_MS: Final = 6_000
_CONNECT_TIMEOUT_MS: Final = 3_000


@asynccontextmanager
async def cluster_session(
    directory: ClusterDirectory,
    record: ClusterRecord,
    clock: Clock,
    rng: Rng,
    timeout_ms: int = _CONNECT_TIMEOUT_MS,
) -> AsyncIterator[ZooKeeper]:
    """Yield a ZooKeeper client of a cluster in a directory. It connects and logs in as the first broker does.

    Raises ClusterError and ConfigError.
    """
    access = access_of_cluster(directory, record, rng)
    async with zookeeper_session(record.zookeeper, clock, rng, timeout_ms, access) as zookeeper:
        yield zookeeper


@asynccontextmanager
async def zookeeper_session(
    connect: str,
    clock: Clock,
    rng: Rng,
    timeout_ms: int = _CONNECT_TIMEOUT_MS,
    access: ZooKeeperAccess = OPEN_ACCESS,
) -> AsyncIterator[ZooKeeper]:
    """Yield a ZooKeeper client whose session ends with the `with` block.

    `connect`: host:port[/chroot]. `timeout_ms`: maximum time to connect. `access`: encryption and authentication.
    Raises ClusterError and ConfigError.
    """
    from minikafka.zookeeper.client.client import (
        ZooKeeperClient,
    )  # imports aiozk, which most commands do not need

    tasks = TaskRegistry()
    zookeeper = ZooKeeperClient(
        connect, _SESSION_TIMEOUT_MS, clock, rng, tasks, SocketTransport(), access=access
    )
    try:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await zookeeper.start()
        except ZooKeeperLoginRefused as error:
            raise ClusterError(str(error)) from error
        except (TimeoutError, CoordinationError) as error:
            raise ClusterError(f"ZooKeeper at {connect} does not answer; is it running?") from error
        yield zookeeper
        await zookeeper.close()
    finally:
        await tasks.close()
