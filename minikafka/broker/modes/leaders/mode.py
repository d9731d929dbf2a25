"""Joining a cluster in which each partition is coordinated by its leader."""

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
from minikafka.broker.modes.leaders.admin_requests import AdminRequests
from minikafka.broker.modes.leaders.administration import LeadersAdministration
from minikafka.broker.modes.leaders.config_writes import LeadersConfigWrites
from minikafka.broker.modes.leaders.creation import Creations
from minikafka.broker.modes.leaders.deletion import Deletions
from minikafka.broker.modes.leaders.diagnostics import LeadersDiagnostics
from minikafka.broker.modes.leaders.isr_store import LeadersIsrs
from minikafka.broker.modes.leaders.lifecycle import LeadersLifecycle
from minikafka.broker.modes.leaders.metadata_source import LeadersMetadata
from minikafka.broker.modes.leaders.peers import Peers
from minikafka.broker.modes.leaders.queue import StateChangeQueue
from minikafka.broker.modes.leaders.reads import PartitionReads
from minikafka.broker.modes.leaders.roles import LeadersRoles
from minikafka.broker.modes.leaders.runner import Runner
from minikafka.broker.modes.leaders.topic_store import LeadersTopics
from minikafka.broker.modes.leaders.topics_in_work import TopicsInWork
from minikafka.broker.modes.zookeeper.config_store import ZooKeeperConfigs
from minikafka.broker.modes.zookeeper.session_file import SessionFile
from minikafka.rpc.coordination import LOOK_AGAIN, TOPIC_IN_WORK
from minikafka.zk.nodes import coordination, ids
from minikafka.zk.nodes.faults import Faults
from minikafka.zk.nodes.leaders import tree

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
        return await ids.cluster_id(self.zookeeper, lambda: self._rng.bytes(16))

    def capabilities(self, control_plane: ControlPlane, ledger: Ledger, gate: Gate) -> Capabilities:
        config, session, clock, tasks = self._config, self.zookeeper, self._clock, self._tasks
        faults = Faults()
        listener = config.endpoints.control.name
        queue = StateChangeQueue(
            session, clock, config.broker_id, config.minikafka_leaders_queue_max
        )
        reads = PartitionReads(
            session, tasks, faults, lambda: administration.allows_unclean_elections
        )
        metadata = LeadersMetadata(config.broker_id, session, clock, tasks, reads, faults)
        runner = Runner(config, session, clock, tasks, ledger, gate, queue, reads, metadata, faults)
        roles = LeadersRoles(config, session, clock, tasks, ledger, queue, runner, metadata)
        peers = Peers(config.broker_id, session, control_plane, listener, faults)
        work = TopicsInWork()
        administration = LeadersAdministration(
            config, session, peers, gate, faults, runner.look_again, runner.poke_all
        )
        roles.calls = {
            TOPIC_IN_WORK: work.answer,
            LOOK_AGAIN: administration.answer,
        }
        diagnostics = LeadersDiagnostics(config.broker_id, clock, runner.machine, metadata, queue)
        tasks.spawn(diagnostics.run(), "backlog")
        return Capabilities(
            lifecycle=LeadersLifecycle(
                session, self._session_file, clock, tasks, ledger, roles, runner, metadata
            ),
            roles=roles,
            isrs=LeadersIsrs(session, runner.isr_written),
            topics=self._topics(gate, queue, metadata, runner, peers, work, faults),
            configs=ZooKeeperConfigs(
                session,
                clock,
                tasks,
                config.broker_id,
                LeadersConfigWrites(session, runner.poke_all),
            ),
            administration=administration,
            diagnostics=diagnostics,
            claim_producer_ids=partial(
                ids.claim_producer_ids, session, config.broker_id, PRODUCER_ID_BLOCK
            ),
            metadata=metadata,
        )

    def _topics(
        self,
        gate: Gate,
        queue: StateChangeQueue,
        metadata: LeadersMetadata,
        runner: Runner,
        peers: Peers,
        work: TopicsInWork,
        faults: Faults,
    ) -> LeadersTopics:
        """Return the store of topics. Each read of all metadata shows it the deletions that nobody performs."""
        session, broker_id = self.zookeeper, self._config.broker_id
        requests = AdminRequests(session, queue, runner.lines.note, faults)
        refresh = metadata.refresh_topics
        deletions = Deletions(
            broker_id,
            session,
            self._clock,
            self._tasks,
            requests,
            gate,
            work,
            peers,
            faults,
            refresh,
        )
        metadata.on_read = deletions.noticed
        creations = Creations(session, requests, gate, faults)
        return LeadersTopics(session, creations, deletions, work, peers, faults, refresh)
