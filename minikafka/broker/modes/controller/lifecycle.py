"""The registration, session and departure of one broker in the controller mode."""

from __future__ import annotations

from collections.abc import Callable

from minikafka.base.errors import Closed, NotConnected, OutcomeUnknown, StaleSession
from minikafka.base.model import Broker, BrokerId
from minikafka.broker.modes.controller.lost_connections import LostConnections
from minikafka.broker.modes.controller.received_requests import ReceivedRequests
from minikafka.broker.modes.controller.terms import ZooKeeperController
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.broker.modes.zookeeper.registration import Registration
from minikafka.broker.modes.zookeeper.session_file import SessionFile
from minikafka.zookeeper.nodes import notifications


class ZooKeeperLifecycle:
    """BrokerLifecycle of the controller mode. A started broker takes part in controller elections."""

    def __init__(
        self,
        ports: Ports,
        session_file: SessionFile,
        controller: ZooKeeperController,
        requests: ReceivedRequests,
        lost_connections: LostConnections,
    ) -> None:
        self._ports = ports
        self._zookeeper = ports.zookeeper
        self._session_file = session_file
        self._controller = controller
        self._requests = requests
        self._lost_connections = lost_connections

    @property
    def session_state(self) -> str:
        return self._zookeeper.state.value

    @property
    def session_timeout_ms(self) -> int:
        """Session timeout in milliseconds, as the server granted it."""
        return self._zookeeper.session_timeout_ms

    async def start(self, broker: Broker, on_registered: Callable[[int], None]) -> None:
        """Register the broker, now and in each later session, and take part in controller elections."""

        def registered(broker_epoch: int) -> None:
            on_registered(broker_epoch)
            self._requests.registered(broker_epoch)

        registration = Registration(self._ports, self._session_file, broker, registered)
        # A controller belongs to the cluster: a broker campaigns only after its registration (R9).
        await registration.start()
        await self._controller.start()

    def report_log_dir_failure(self) -> None:
        """Notify the controller in the background that this broker lost a log directory (R67)."""
        self._ports.tasks.spawn(self._report_log_dir_failure(), "log-dir-failure")

    def report_lost_connection(self, broker_id: BrokerId) -> None:
        """Report to the controller, in the background, that a connection to a broker has ended."""
        self._lost_connections.report(broker_id)

    async def _report_log_dir_failure(self) -> None:
        """Write the notification; retry after a lost connection, a lost answer or a lost session."""
        while True:
            try:
                await self._zookeeper.connected()
                await notifications.announce_log_dir_failure(self._zookeeper, self._ports.broker_id)
                return
            except Closed:
                return
            except (NotConnected, OutcomeUnknown, StaleSession):
                continue

    async def resign(self) -> None:
        """Resign if this broker is the controller, and take part in no further election."""
        # This broker is going to close its own connections: their ends say nothing about other brokers.
        self._lost_connections.close()
        await self._controller.resign()

    async def stop(self) -> None:
        """Close the session, which deletes the broker's registration."""
        await self._zookeeper.close()
