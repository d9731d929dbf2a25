"""The marker of a cluster's coordination mode."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError
from minikafka.simulation.zookeeper import ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.zookeeper.nodes import coordination

MODES = [coordination.CONTROLLER, coordination.LEADERS]


@pytest.fixture
async def zookeeper() -> InMemoryClient:
    zookeeper = InMemoryClient(ZooKeeperInMemory())
    await zookeeper.start()
    return zookeeper


@pytest.mark.parametrize("mode", MODES)
async def test_first_broker_writes_the_mode_and_later_brokers_of_the_mode_join(
    zookeeper: InMemoryClient, mode: str
) -> None:
    assert await coordination.read(zookeeper) is None
    await coordination.claim(zookeeper, mode)
    await coordination.claim(zookeeper, mode)
    assert zookeeper.server.nodes["/minikafka/coordination"].data == mode.encode()
    assert await coordination.read(zookeeper) == mode


@pytest.mark.parametrize("mode", MODES)
async def test_broker_of_the_other_mode_is_refused_with_both_names(
    zookeeper: InMemoryClient, mode: str
) -> None:
    [other] = set(MODES) - {mode}
    await coordination.claim(zookeeper, mode)
    with pytest.raises(ConfigError, match=f"the mode {other}, but .* the mode {mode}"):
        await coordination.claim(zookeeper, other)
    assert zookeeper.server.nodes["/minikafka/coordination"].data == mode.encode()


async def test_cluster_of_an_earlier_version_has_the_controller_mode(
    zookeeper: InMemoryClient,
) -> None:
    zookeeper.server.put("/controller_epoch", b"7")
    assert await coordination.read(zookeeper) == "controller"
    with pytest.raises(ConfigError, match=r"the mode leaders, but .* the mode controller"):
        await coordination.claim(zookeeper, "leaders")
    await coordination.claim(zookeeper, "controller")


async def test_brokers_that_start_a_cluster_at_once_have_one_mode(
    zookeeper: InMemoryClient,
) -> None:
    other = InMemoryClient(zookeeper.server)
    await other.start()
    read = zookeeper.ensure

    async def overtaken(path: str) -> None:
        await read(path)
        await coordination.claim(other, "leaders")

    zookeeper.ensure = overtaken  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match=r"the mode controller, but .* the mode leaders"):
        await coordination.claim(zookeeper, "controller")


@pytest.mark.parametrize("text", [b"", b"raft", b"\xff"])
async def test_unreadable_marker_is_refused(zookeeper: InMemoryClient, text: bytes) -> None:
    zookeeper.server.put("/minikafka/coordination", text)
    with pytest.raises(ConfigError, match="must contain controller or leaders"):
        await coordination.claim(zookeeper, "leaders")
