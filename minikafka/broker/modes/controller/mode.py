"""Joining a cluster whose controller keeps its state in ZooKeeper."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from minikafka.base.config import BrokerConfig
from minikafka.base.ports import (
    Clock,
    ControlPlane,
    Gate,
    Ledger,
    Rng,
    Storage,
    Tasks,
    ZooKeeper,
)
from minikafka.broker.capabilities import Capabilities
from minikafka.broker.modes.controller.fenced_writes import ControllerConfigWrites, FencedWrites
from minikafka.broker.modes.controller.isr_store import ZooKeeperIsrs
from minikafka.broker.modes.controller.lifecycle import ZooKeeperLifecycle
from minikafka.broker.modes.controller.lost_connections import LostConnections
from minikafka.broker.modes.controller.lost_disk import wait_until_in_no_isr
from minikafka.broker.modes.controller.received_requests import ReceivedRequests
from minikafka.broker.modes.controller.terms import ZooKeeperController
from minikafka.broker.modes.controller.topic_store import ZooKeeperTopics
from minikafka.broker.modes.zookeeper.acl_store import ZooKeeperAcls
from minikafka.broker.modes.zookeeper.config_store import ZooKeeperConfigs
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.broker.modes.zookeeper.session_file import SessionFile
from minikafka.broker.modes.zookeeper.token_store import ZooKeeperTokens
from minikafka.broker.rpc.channels import Channels
from minikafka.broker.rpc.liveness import attend, probe
from minikafka.zookeeper.nodes import coordination, ids
from minikafka.zookeeper.nodes.faults import Faults

PRODUCER_ID_BLOCK: Final = 1000
"""Number of producer ids that a broker claims at a time, as in Kafka."""


class ControllerMode:
    """The CoordinationMode with a controller over ZooKeeper; `join` starts the session.

    `close_session(id, password)` ends the session of an earlier process of this broker.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        rng: Rng,
        storage: Storage,
        tasks: Tasks,
        zookeeper: ZooKeeper,
        close_session: Callable[[int, bytes], Awaitable[None]],
    ) -> None:
        self.zookeeper = zookeeper
        self._config = config
        self._clock = clock
        self._rng = rng
        self._tasks = tasks
        self._close_session = close_session
        self._session_file = SessionFile(storage, config.log_dirs[0])

    async def join(self, known: str | None) -> str:
        # The registration of the former session would refuse this broker until that session has expired.
        await self._session_file.end_former(self._close_session)
        await self.zookeeper.start()
        # Before the first write: this may be the ZooKeeper of another cluster, or of a cluster in the other mode.
        await ids.verify(self.zookeeper, known)
        self._session_file.write(self.zookeeper)
        await coordination.claim(self.zookeeper, coordination.CONTROLLER)
        await coordination.ensure_parents(self.zookeeper)
        connect = self._config.zookeeper_connect
        found = await ids.cluster_id(self.zookeeper, lambda: self._rng.bytes(16), connect)
        if known is None:
            await wait_until_in_no_isr(self.zookeeper, self._config.broker_id, self._clock)
        return found

    def capabilities(self, control_plane: ControlPlane, ledger: Ledger, gate: Gate) -> Capabilities:
        session, clock, tasks = self.zookeeper, self._clock, self._tasks
        ports = Ports(self._config, session, clock, tasks, ledger, gate, Faults())
        listener = ports.config.endpoints.control.name
        timeout_ms = ports.config.controller_socket_timeout_ms
        channels = Channels(control_plane, clock, tasks, self._rng, ledger, listener, timeout_ms)
        controller = ZooKeeperController(
            ports,
            channels,
            lambda broker: probe(control_plane, clock, broker, listener),
            lambda broker: attend(control_plane, broker, listener),
        )
        requests = ReceivedRequests(ports)
        lost_connections = LostConnections(ports, controller, requests, control_plane)
        requests.calls |= lost_connections.calls
        return Capabilities(
            lifecycle=ZooKeeperLifecycle(
                ports, self._session_file, controller, requests, lost_connections
            ),
            roles=requests,
            isrs=ZooKeeperIsrs(session, clock, tasks),
            topics=ZooKeeperTopics(session, FencedWrites(session, controller, ledger)),
            configs=ZooKeeperConfigs(
                session,
                clock,
                tasks,
                ports.broker_id,
                ControllerConfigWrites(session, controller, ledger),
            ),
            acls=ZooKeeperAcls(ports),
            tokens=ZooKeeperTokens(ports),
            administration=controller,
            diagnostics=controller,
            claim_producer_ids=partial(
                ids.claim_producer_ids, session, ports.broker_id, PRODUCER_ID_BLOCK
            ),
        )
