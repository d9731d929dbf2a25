"""The measured differences between the wall clocks of brokers: gauges and warnings."""

from __future__ import annotations

import asyncio
import logging

import pytest
from support.until import until

from minikafka.base.endpoints import Endpoint, SecurityProtocol
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.metrics import Metrics, prometheus_text
from minikafka.base.model import Broker, UpdateMetadataRequest
from minikafka.broker.clock_offsets import PERIOD_MS, WARN_MS, ClockOffsets
from minikafka.broker.metadata import MetadataCache
from minikafka.simulation.clocks import ManualClock

LISTENER = "CONTROL"
HOUR = 3_600_000


class ControlPlane:
    """A control plane that returns the offsets set by the test; an exception instead of an offset is raised."""

    def __init__(self) -> None:
        self.offsets: dict[int, int | Exception] = {}
        self.asked: list[int] = []

    async def clock_offset(self, endpoint: Endpoint, *, target_id: int, timeout_ms: int) -> int:
        assert (endpoint.host, endpoint.port) == ("h", 9000 + target_id)
        self.asked.append(target_id)
        offset = self.offsets.get(target_id, 0)
        if isinstance(offset, Exception):
            raise offset
        return offset


class World:
    """Broker 1, which measures the clocks of the other brokers in its metadata."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.metadata = MetadataCache(self.clock)
        self.plane = ControlPlane()
        self.offsets = ClockOffsets(1, self.metadata, self.plane, LISTENER)  # type: ignore[arg-type]
        self.metrics = Metrics()
        self.offsets.register(self.metrics)

    def brokers(self, *ids: int, epoch: int = 5) -> None:
        brokers = (self.broker(id_, epoch) for id_ in ids)
        self.metadata.update(UpdateMetadataRequest(1, 1, 1, (), tuple(brokers), ()))

    def broker(self, id_: int, epoch: int) -> Broker:
        endpoint = Endpoint(LISTENER, "h", 9000 + id_, SecurityProtocol.PLAINTEXT)
        return Broker(id_, (endpoint,), epoch)

    async def measured(self) -> None:
        """Measure once, as after each period."""
        await self.offsets._measure_all()

    def page(self) -> dict[str, float]:
        lines = "".join(prometheus_text(self.metrics)).splitlines()
        found = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        prefix = "kafka_server_kafkaserver_"
        return {name.removeprefix(prefix): float(value) for name, value in found}


@pytest.fixture
def world(caplog: pytest.LogCaptureFixture) -> World:
    caplog.set_level(logging.INFO, "minikafka.broker.clock_offsets")
    return World()


async def test_offsets_are_measured_again_after_each_period_and_for_new_brokers(
    world: World,
) -> None:
    running = asyncio.ensure_future(world.offsets.run())
    world.brokers(1, 2, 3)
    await until(lambda: sorted(world.plane.asked) == [2, 3] and world.clock.waiting())
    world.brokers(1, 2, 3)
    world.clock.advance(PERIOD_MS - 1)
    await asyncio.sleep(0)
    assert len(world.plane.asked) == 2
    world.clock.advance(1)
    await until(lambda: sorted(world.plane.asked) == [2, 2, 3, 3] and world.clock.waiting())
    world.brokers(1, 2, 3, 4)
    await until(lambda: 4 in world.plane.asked)
    world.brokers(1, 2, 3, 4, epoch=6)
    await until(lambda: world.plane.asked.count(4) == 2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_gauges_show_each_offset_and_the_largest_difference(world: World) -> None:
    assert world.page() == {"maxclockoffsetms": 0}
    world.plane.offsets = {2: 120_000, 3: -5 * HOUR}
    world.brokers(1, 2, 3)
    await world.measured()
    assert world.page() == {
        'clockoffsetms{broker_id="2"}': 120_000,
        'clockoffsetms{broker_id="3"}': -5 * HOUR,
        "maxclockoffsetms": 5 * HOUR,
    }
    world.brokers(1, 2)
    await world.measured()
    assert world.page() == {'clockoffsetms{broker_id="2"}': 120_000, "maxclockoffsetms": 120_000}


@pytest.mark.parametrize(
    "error", [ConnectionError("refused"), KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]
)
async def test_broker_that_does_not_answer_keeps_its_last_offset(
    world: World, error: Exception
) -> None:
    world.plane.offsets = {2: 7, 3: error}
    world.brokers(1, 2, 3)
    await world.measured()
    world.plane.offsets = {2: error, 3: 8}
    await world.measured()
    assert world.page() == {
        'clockoffsetms{broker_id="2"}': 7,
        'clockoffsetms{broker_id="3"}': 8,
        "maxclockoffsetms": 8,
    }


@pytest.mark.parametrize(
    ("offset", "text"),
    [
        (WARN_MS - 1, None),
        (1 - WARN_MS, None),
        (WARN_MS, "the clock of broker 2 is 10.0 s ahead of this broker's clock"),
        (-5 * HOUR, "the clock of broker 2 is 18000.0 s behind this broker's clock"),
    ],
)
async def test_large_offset_is_a_warning_that_names_the_broker_and_the_amount(
    world: World, caplog: pytest.LogCaptureFixture, offset: int, text: str | None
) -> None:
    world.plane.offsets = {2: offset, 3: 5}
    world.brokers(1, 2, 3)
    await world.measured()
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == (text is not None)
    assert all(text and warning.startswith(text) for warning in warnings)


async def test_warning_is_repeated_only_when_the_offset_has_changed(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.brokers(1, 2)
    counts = []
    for offset in (HOUR, HOUR + 1, HOUR - 1, HOUR + WARN_MS, HOUR, 0, 3, HOUR, -HOUR):
        world.plane.offsets = {2: offset}
        await world.measured()
        counts.append(len(caplog.records))
    assert counts == [1, 1, 1, 2, 3, 4, 4, 5, 6]
    assert caplog.records[3].getMessage() == "the clock of broker 2 differs by only 0.0 s now"


async def test_offset_close_to_the_limit_is_logged_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.brokers(1, 2)
    for n in range(20):
        world.plane.offsets = {2: WARN_MS + (-1) ** n}
        await world.measured()
    assert len(caplog.records) == 1


async def test_broker_that_returns_is_warned_about_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.plane.offsets = {2: HOUR}
    for ids in ((1, 2), (1,), (1, 2)):
        world.brokers(*ids)
        await world.measured()
    assert len(caplog.records) == 2
