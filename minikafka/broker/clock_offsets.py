"""The differences between the wall clocks of the brokers, as a metric and as a warning.

No decision of a broker compares its wall clock with another broker's. But people compare the times in logs and
ledgers, and each broker applies retention, the expiry of committed offsets and the limits of timestamps by its
own clock. Invariant: offsets are kept only for brokers in the metadata.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from minikafka.base.errors import KafkaError
from minikafka.base.metrics import MetricKind, Metrics, Sample
from minikafka.base.model import Broker, BrokerId
from minikafka.base.ports import ControlPlane
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.side_by_side import AT_ONCE, all_of

logger = logging.getLogger(__name__)

PERIOD_MS: Final = 30_000
"""Time between two measurements.

It is shorter than the time for which a challenge can be used (`broker/rpc/client.py`). So a broker that calls another
broker, for example as the new controller, seldom has to ask for a challenge first.
"""
TIMEOUT_MS: Final = 5_000
WARN_MS: Final = 10_000
"""Difference between two clocks from which it is logged; also the change from which it is logged again."""
_BEAN: Final = "kafka.server:type=KafkaServer,name="


class ClockOffsets:
    """The latest measured difference between each other broker's wall clock and this broker's.

    `listener` is the name of the control listener, which is the same on all brokers.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        metadata: MetadataCache,
        control_plane: ControlPlane,
        listener: str,
    ) -> None:
        self._id = broker_id
        self._metadata = metadata
        self._control_plane = control_plane
        self._listener = listener
        self._asked: set[tuple[BrokerId, int]] = set()
        """(id, epoch) of each broker that the last measurement included."""
        self._offsets: dict[BrokerId, int] = {}
        self._logged: dict[BrokerId, int] = {}
        """Broker -> the offset in the latest warning, for brokers whose clocks still differ."""

    async def run(self) -> None:
        """Measure all offsets every `PERIOD_MS`, and as soon as the metadata has a new broker. Never returns."""
        while True:
            await self._measure_all()
            await self._metadata.wait_until(self._has_new_broker, PERIOD_MS)

    def register(self, metrics: Metrics) -> None:
        """Register the gauges of the offsets."""
        metrics.collect(
            _BEAN + "ClockOffsetMs",
            MetricKind.GAUGE,
            "Milliseconds by which the wall clock of broker_id is ahead of this broker's.",
            self._samples,
        )
        metrics.gauge(
            _BEAN + "MaxClockOffsetMs",
            "Largest difference in milliseconds between this broker's wall clock and another broker's.",
            lambda: max(map(abs, self._offsets.values()), default=0),
        )

    def report(self) -> dict[str, int]:
        """Return by broker id how many milliseconds the broker's clock is ahead, for `minikafka cluster health`."""
        return {str(broker_id): offset for broker_id, offset in self._offsets.items()}

    def _samples(self) -> Iterator[Sample]:
        for broker_id, offset in sorted(self._offsets.items()):
            yield Sample({"broker_id": str(broker_id)}, offset)

    def _others(self) -> list[Broker]:
        return [broker for broker in self._metadata.brokers.values() if broker.id != self._id]

    def _has_new_broker(self) -> bool:
        return any((broker.id, broker.epoch) not in self._asked for broker in self._others())

    async def _measure_all(self) -> None:
        others = self._others()
        self._asked = {(broker.id, broker.epoch) for broker in others}
        await all_of(map(self._measure, others), AT_ONCE)
        for gone in self._offsets.keys() - {broker.id for broker in self._others()}:
            self._offsets.pop(gone)
            self._logged.pop(gone, None)

    async def _measure(self, broker: Broker) -> None:
        """Measure the offset of one broker. A broker that does not answer keeps its former offset."""
        endpoint = broker.endpoint(self._listener)
        if endpoint is None:
            return
        try:
            offset = await self._control_plane.clock_offset(
                endpoint, target_id=broker.id, timeout_ms=TIMEOUT_MS
            )
        except (OSError, KafkaError) as error:
            logger.debug("the clock of broker %d is unknown: %s", broker.id, error)
            return
        self._offsets[broker.id] = offset
        self._log(broker.id, offset)

    def _log(self, broker_id: BrokerId, offset: int) -> None:
        """Log an offset that is large and differs from the last logged one, or that is no longer large."""
        logged = self._logged.get(broker_id, 0)
        seconds = abs(offset) / 1000
        if abs(offset) >= WARN_MS and abs(offset - logged) >= WARN_MS:
            self._logged[broker_id] = offset
            logger.warning(
                "the clock of broker %d is %.1f s %s this broker's clock: set the clocks, because retention, offset "
                "expiry and the times in logs depend on them",
                broker_id,
                seconds,
                "ahead of" if offset > 0 else "behind",
            )
        elif logged and abs(offset) < WARN_MS // 2:
            del self._logged[broker_id]
            logger.info("the clock of broker %d differs by only %.1f s now", broker_id, seconds)
