"""Joining a cluster in which each partition is coordinated by its leader."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from minikafka.base.config import BrokerConfig
from minikafka.base.ports import (
    Check,
    Clock,
    ControlPlane,
    Gate,
    Ledger,
    MultiOp,
    Rng,
    Storage,
    Tasks,
    Znode,
    ZooKeeper,
)
from minikafka.broker.capabilities import Capabilities
from minikafka.broker.modes.leaders.admin_requests import AdminRequests
from minikafka.broker.modes.leaders.administration import LeadersAdministration
from minikafka.broker.modes.leaders.deletion import OwnDeletions
from minikafka.broker.modes.leaders.diagnostics import LeadersDiagnostics
from minikafka.broker.modes.leaders.host import LeadersHost, LeadersIsrs
from minikafka.broker.modes.leaders.lifecycle import LeadersLifecycle, LeadersRoles
from minikafka.broker.modes.leaders.metadata_source import LeadersMetadata
from minikafka.broker.modes.leaders.peers import Peers
from minikafka.broker.modes.leaders.queue import StateChangeQueue
from minikafka.broker.modes.leaders.reads import PartitionReads
from minikafka.broker.modes.leaders.topic_store import LeadersTopics
from minikafka.broker.modes.zookeeper.acl_store import ZooKeeperAcls
from minikafka.broker.modes.zookeeper.config_store import ZooKeeperConfigs
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.broker.modes.zookeeper.session_file import SessionFile
from minikafka.broker.modes.zookeeper.token_store import ZooKeeperTokens
from minikafka.broker.rpc.coordination import LOOK_AGAIN, TOPIC_IN_WORK
from minikafka.zookeeper.nodes import coordination, ids
from minikafka.zookeeper.nodes.faults import Faults
from minikafka.zookeeper.nodes.leaders import tree

PRODUCER_ID_BLOCK: Final = 1000
"""Number of producer ids that a broker claims at a time, as in Kafka."""


class LeadersMode:
    """The CoordinationMode without a controller; `join` starts the session.

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
        await self._session_file.end_former(self._close_session)
        await self.zookeeper.start()
        await ids.verify(self.zookeeper, known)
        await coordination.claim(self.zookeeper, coordination.LEADERS)
        self._session_file.write(self.zookeeper)
        await tree.ensure(self.zookeeper)
        connect = self._config.zookeeper_connect
        return await ids.cluster_id(self.zookeeper, lambda: self._rng.bytes(16), connect)

    def capabilities(self, control_plane: ControlPlane, ledger: Ledger, gate: Gate) -> Capabilities:
        session, clock, tasks = self.zookeeper, self._clock, self._tasks
        ports = Ports(self._config, session, clock, tasks, ledger, gate, Faults())
        queue = StateChangeQueue(
            session, clock, ports.broker_id, ports.config.minikafka_leaders_queue_max
        )
        reads = PartitionReads(ports)
        metadata = LeadersMetadata(ports, reads)
        host = LeadersHost(ports, queue, reads, metadata)
        roles = LeadersRoles(ports, queue, host, metadata)
        peers = Peers(ports, control_plane)
        administration = LeadersAdministration(ports, peers, host)
        roles.calls = {
            TOPIC_IN_WORK: peers.work.answer,
            LOOK_AGAIN: administration.answer,
        }
        diagnostics = LeadersDiagnostics(ports.broker_id, clock, host.machine, metadata, queue)
        tasks.spawn(diagnostics.run(), "backlog")
        config_writes = LeadersConfigWrites(session, host)
        return Capabilities(
            lifecycle=LeadersLifecycle(ports, self._session_file, roles, host, metadata),
            roles=roles,
            isrs=LeadersIsrs(session, host.isr_written),
            topics=_topics(ports, AdminRequests(ports, queue, host.note), peers, metadata),
            configs=ZooKeeperConfigs(session, clock, tasks, ports.broker_id, config_writes),
            acls=ZooKeeperAcls(ports),
            tokens=ZooKeeperTokens(ports),
            administration=administration,
            diagnostics=diagnostics,
            claim_producer_ids=partial(
                ids.claim_producer_ids, session, ports.broker_id, PRODUCER_ID_BLOCK
            ),
            metadata=metadata,
        )


def _topics(
    ports: Ports, requests: AdminRequests, peers: Peers, metadata: LeadersMetadata
) -> LeadersTopics:
    """Return the store of topics. Each read of all metadata shows it the deletions that nobody performs."""
    deletions = OwnDeletions(ports, requests, peers, metadata.refresh_topics)
    metadata.on_read = deletions.noticed
    return LeadersTopics(ports, requests, deletions, peers, metadata.refresh_topics)


class LeadersConfigWrites:
    """ConfigWrites of the mode, without a fence: every broker acts, and none decides alone.

    Every broker deletes old notifications. Of the brokers that do so at once, one succeeds with all its deletions, and
    the others with none.
    """

    fence_paths: Final = ()

    def __init__(self, zookeeper: ZooKeeper, host: LeadersHost) -> None:
        self._zookeeper = zookeeper
        self._host = host

    def fence(self, nodes: Sequence[Znode | None]) -> list[Check]:
        """Return no check: the version of the settings node is enough."""
        return []

    async def write(self, fence: list[Check], operations: Sequence[MultiOp]) -> None:
        """Write all operations or none. Raises CoordinationError."""
        await self._zookeeper.multi([*fence, *operations])

    def acts_on_changes(self) -> bool:
        """Return True: an election concerns every broker that hosts a replica."""
        return True

    def unclean_election_enabled(self, topics: Sequence[str]) -> None:
        """Read the partitions of these topics again: a leaderless one may elect a leader now."""
        self._host.schedule_reads(topics)

    async def purge(self, operations: Sequence[MultiOp]) -> None:
        """Delete old notifications. Raises CoordinationError, for example if another broker has deleted them."""
        await self._zookeeper.multi(operations)
