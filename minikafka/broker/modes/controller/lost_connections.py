"""Reports of ended connections to other brokers, and the calls that show whether this broker is alive.

The first sign that a broker has died is the end of its connections, long before its session expires. Every broker
that sees this sign reports it to the controller, which probes the broker (`terms/probes.py`). If the connection to
the controller itself has ended, this broker is a candidate that may replace the controller.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from minikafka.base.errors import KafkaError
from minikafka.base.model import BrokerId
from minikafka.base.ports import Call, ControlPlane
from minikafka.broker.modes.controller.received_requests import ReceivedRequests
from minikafka.broker.modes.controller.terms import ZooKeeperController
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.broker.rpc.broker_calls import call_broker
from minikafka.broker.rpc.liveness import ATTEND, CONNECTION_LOST, PRESENT
from minikafka.broker.rpc.messages import decode_report, encode_registration, encode_report

logger = logging.getLogger(__name__)

_REPORT_MS: Final = 2_000
"""Time to wait for the answer to a report."""
_ATTEMPTS: Final = 3
"""Attempts to send a report at once. The keep-alive connections to the controller may have ended."""
_AGAIN_MS: Final = 500
"""Pause before a report without an answer is sent again, perhaps to another controller."""


class LostConnections:
    """The reports of one broker, and its handlers of the calls in `broker/rpc/liveness.py`.

    `calls`: the handlers, by method.
    """

    def __init__(
        self,
        ports: Ports,
        controller: ZooKeeperController,
        requests: ReceivedRequests,
        control_plane: ControlPlane,
    ) -> None:
        self._id = ports.broker_id
        self._is_enabled = ports.config.minikafka_fast_failover_enable
        self._listener = ports.config.endpoints.control.name
        self._controller = controller
        self._requests = requests
        self._control_plane = control_plane
        self._clock = ports.clock
        self._tasks = ports.tasks
        self._in_flight: set[BrokerId] = set()
        self.calls = {
            CONNECTION_LOST: self._on_report,
            PRESENT: self._on_present,
            ATTEND: self._on_attend,
        }

    def close(self) -> None:
        """Send no further report: this broker closes its connections itself."""
        self._is_enabled = False

    def report(self, broker_id: BrokerId) -> None:
        """Report in the background that a connection to a broker has ended. At most one report per broker is sent."""
        broker = self._requests.brokers.get(broker_id)
        if not self._is_enabled or broker is None:
            return
        if broker_id == self._controller.controller_id != self._id:
            self._controller.controller_lost()
        elif self._controller.is_active:
            self._controller.connection_lost(broker_id, broker.epoch, self._id)
        elif broker_id not in self._in_flight:
            self._in_flight.add(broker_id)
            self._tasks.spawn(self._report(broker_id, broker.epoch), f"report-{broker_id}")

    async def _report(self, broker_id: BrokerId, broker_epoch: int) -> None:
        """Send a report until the controller has it, or until the registration that it names has ended.

        A leader loses the connection to a dead follower only once, so nothing else would cause a second report.
        """
        body = encode_report(broker_id, broker_epoch, self._id)
        try:
            while self._is_enabled and self._is_registered(broker_id, broker_epoch):
                try:
                    await self._send_report(body)
                    return
                except (OSError, KafkaError) as error:
                    logger.info(
                        "lost connection to broker %d not reported yet: %s", broker_id, error
                    )
                await self._clock.sleep(_AGAIN_MS)
        finally:
            self._in_flight.discard(broker_id)

    def _is_registered(self, broker_id: BrokerId, broker_epoch: int) -> bool:
        broker = self._requests.brokers.get(broker_id)
        return broker is not None and broker.epoch == broker_epoch

    async def _send_report(self, body: dict[str, Any]) -> None:
        """Send a report to the controller. Raises OSError, KafkaError."""
        controller = self._requests.brokers.get(self._controller.controller_id)
        if controller is None:
            raise ConnectionError("no controller is known")
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                await call_broker(
                    self._control_plane,
                    controller,
                    self._listener,
                    CONNECTION_LOST,
                    body,
                    _REPORT_MS,
                )
                return
            except ConnectionRefusedError:
                self._controller.controller_lost()
                raise
            except ConnectionError:
                if attempt == _ATTEMPTS:
                    raise

    async def _on_report(self, call: Call) -> dict[str, Any]:
        self._controller.connection_lost(*decode_report(call.body))
        return {}

    async def _on_present(self, _: Call) -> dict[str, Any]:
        return encode_registration(self._id, self._requests.broker_epoch)

    async def _on_attend(self, _: Call) -> dict[str, Any]:
        await self._controller.attend()
        return {}
