"""One broker: everything it is made of, in the order in which it starts and stops.

It gets its clock, randomness, storage, transport, coordination, control plane and tasks as arguments, so
that the production loop and an in-memory one can both run it. Invariant: it is registered in
`/brokers/ids` only while it can answer, and it leaves its leaderships behind before it goes.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import (
    Closed,
    ConfigError,
    CoordinationError,
    ErrorCode,
    KafkaError,
    NodeExists,
    NoNode,
    NotConnected,
    OutcomeUnknown,
    StaleSession,
    StorageFailed,
)
from minikafka.base.model import Broker as BrokerInfo
from minikafka.base.model import ControllerRequest, ControllerResponse, TopicPartition
from minikafka.base.ports import (
    Call,
    Clock,
    ControlPlane,
    Coordination,
    Executor,
    Rng,
    SessionState,
    Storage,
    Tasks,
    Transport,
)
from minikafka.broker.admin import Admin
from minikafka.broker.admin.auto_create import AutoCreate
from minikafka.broker.admin.configs import ConfigAdmin
from minikafka.broker.admin.partitions import PartitionAdmin
from minikafka.broker.admin.topics import TopicAdmin
from minikafka.broker.config_changes import ConfigChanges
from minikafka.broker.dynamic_config import DynamicConfig
from minikafka.broker.gauges import gauges
from minikafka.broker.listener import KafkaListener
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.partition_report import (
    metadata_of,
    partition_asked,
    replica_of,
    rows_of,
    settings_of,
)
from minikafka.broker.producer_ids import ProducerIds
from minikafka.broker.replicas import ReplicaManager
from minikafka.broker.services import Services
from minikafka.broker.step_gate import AT_BROKER, StepGate
from minikafka.broker.zk_controller import ControllerService
from minikafka.ledger.record import BROKER, by_topic, in_parts
from minikafka.ledger.writer import LedgerWriter, directory_of
from minikafka.log.manager import LogManager
from minikafka.rpc import messages
from minikafka.rpc.channels import Channels
from minikafka.zk import layout

logger = logging.getLogger(__name__)

SESSION_FILE: Final = "zookeeper-session"
"""In the first log directory: id and password of the session, so that a restart can end it at once."""
_SESSION_IDS: Final = range(-(2**63), 2**63)
"""What ZooKeeper's protocol has room for; 0 stands for no session."""
_PASSWORD_BYTES: Final = 16
_CALL_TIMEOUT_MS: Final = 30_000


class Broker:
    """A broker of this configuration.

    `coordination` is not started yet; `new_control_plane(cluster_id)` makes the RPC endpoint once the cluster
    is known; `close_session(id, password)` ends an older session of this broker.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        rng: Rng,
        storage: Storage,
        transport: Transport,
        coordination: Coordination,
        new_control_plane: Callable[[str], ControlPlane],
        tasks: Tasks,
        executor: Executor,
        close_session: Callable[[int, bytes], Awaitable[None]],
    ) -> None:
        self.config = config
        self.clock = clock
        self.rng = rng
        self.storage = storage
        self.transport = transport
        self.coordination = coordination
        self.new_control_plane = new_control_plane
        self.tasks = tasks
        self.close_session = close_session
        self.ledger = LedgerWriter(
            storage, directory_of(config.log_dirs[0]), config.broker_id, clock
        )
        self.settings = DynamicConfig(config)
        self.metadata = MetadataCache(clock)
        self.logs = LogManager(storage, config, clock, executor)
        self.replicas = ReplicaManager(
            config.broker_id,
            config,
            self.logs,
            self.metadata,
            coordination,
            transport,
            clock,
            tasks,
            self.ledger,
        )
        self.info: BrokerInfo
        self.producer_ids = ProducerIds(coordination, config.broker_id)
        self.control_plane: ControlPlane
        self.gate = StepGate()
        self.controller: ControllerService
        self.config_changes: ConfigChanges
        self.admin: Admin
        self.listener: KafkaListener
        self._former_sessions: set[int] = set()
        self._has_registered = asyncio.Event()
        self._stopping = False

    # ---- start

    async def start(self) -> None:
        """Recover, listen, register; returns when the controller knows this broker.

        Raises ConfigError, OSError (a port in use), StorageFailed, CoordinationError.
        """
        self.logs.lock()
        self.ledger.open()
        self._note("started")
        await self._end_former_session()
        await self.coordination.start()
        self._keep_session()
        for path in layout.PERSISTENT:
            await self.coordination.ensure(path)
        cluster_id = await self._cluster_id()
        await self.logs.start(cluster_id)
        await self._listen(cluster_id)
        await self.config_changes.start()
        self.replicas.start()
        self.tasks.spawn(self._session_events(), "session-events")
        self.tasks.spawn(self.producer_ids.prepare(), "producer-ids")
        await self._register()
        await self.controller.start()
        await self.metadata.wait_until(self._is_known, 2 * self.coordination.session_timeout_ms)

    def _is_known(self) -> bool:
        known = self.metadata.brokers.get(self.config.broker_id)
        return known is not None and known.epoch >= self.info.epoch

    def _session_path(self) -> str:
        return f"{self.config.log_dirs[0]}/{SESSION_FILE}"

    async def _end_former_session(self) -> None:
        """A session that outlived this broker's process is ended, not waited for."""
        path = self._session_path()
        try:
            if self.storage.exists(path):
                await self.close_session(*_session(self.storage.read(path)))
        except (ValueError, KeyError, TypeError, StorageFailed):
            logger.warning("%s is not readable, the former session is left to expire", path)

    def _keep_session(self) -> None:
        """Without its first directory the broker goes on with the others."""
        session = {
            "id": self.coordination.session_id,
            "password": self.coordination.session_password.hex(),
        }
        data = json.dumps(session).encode()
        try:
            self.storage.write_atomically(self._session_path(), data, private=True)
        except StorageFailed as failure:
            logger.warning("the session is not noted for the next start: %s", failure)

    async def _cluster_id(self) -> str:
        try:
            data, _ = await self.coordination.get(layout.CLUSTER_ID)
        except NoNode:
            data = layout.encode_cluster_id(layout.topic_id_text(self.rng.bytes(16)))
            await self.coordination.ensure(layout.CLUSTER_ID.rpartition("/")[0])
            with suppress(NodeExists):
                await self.coordination.create(layout.CLUSTER_ID, data)
            data, _ = await self.coordination.get(layout.CLUSTER_ID)
        return layout.decode_cluster_id(data)

    async def _listen(self, cluster_id: str) -> None:
        self.control_plane = self.new_control_plane(cluster_id)
        endpoints = self.config.endpoints
        control = endpoints.control
        serving = await self.control_plane.serve(self.on_call, control.host, control.port)
        self.info = BrokerInfo(self.config.broker_id, (), rack=self.config.broker_rack)
        self.controller = self._candidate()
        self.config_changes = ConfigChanges(
            self.coordination,
            self.clock,
            self.tasks,
            self.settings,
            self.replicas,
            self.controller,
            self.ledger,
        )
        self.admin = self._administration()
        self.listener = KafkaListener(
            self._services(cluster_id), self.replicas, self.transport, self.tasks
        )
        ports = await self.listener.start(endpoints.kafka)
        ports[control.name] = serving.port
        self.info = replace(self.info, endpoints=endpoints.registered(ports))

    def _candidate(self) -> ControllerService:
        return ControllerService(
            self.coordination,
            Channels(
                self.control_plane,
                self.clock,
                self.tasks,
                self.rng,
                self.ledger,
                self.config.endpoints.control.name,
            ),
            self.clock,
            self.tasks,
            self.config,
            self.info,
            self.ledger,
            self.gate,
        )

    def _administration(self) -> Admin:
        coordination, controller, metadata = self.coordination, self.controller, self.metadata
        topics = TopicAdmin(
            coordination, controller, metadata, self.settings, self.rng, self.ledger
        )
        return Admin(
            topics,
            AutoCreate(topics, controller, metadata, self.config, self.tasks, self.control_plane),
            PartitionAdmin(coordination, controller, metadata, self.ledger),
            ConfigAdmin(
                coordination,
                metadata,
                self.settings,
                self.config_changes.apply_now,
                self.ledger,
            ),
        )

    def _services(self, cluster_id: str) -> Services:
        return Services(
            broker_id=self.config.broker_id,
            cluster_id=cluster_id,
            config=self.config,
            settings=self.settings,
            clock=self.clock,
            rng=self.rng,
            replicas=self.replicas,
            metadata=self.metadata,
            admin=self.admin,
            producer_ids=self.producer_ids,
            controller=self.controller,
            control_plane=self.control_plane,
        )

    # ---- registration

    async def _register(self) -> None:
        """Create `/brokers/ids/N` in this session (A1, R10). Raises ConfigError when a rival holds the id."""
        path = layout.broker_path(self.config.broker_id)
        data = layout.encode_broker(self.info, self.clock.wall_ms())
        waited = False
        while True:
            generation = await self.coordination.connected()
            try:
                epoch = await self._registration(path, data, generation)
                if epoch is None and not waited:
                    waited = await self._wait_until_gone(path)
                    continue
            except (NotConnected, OutcomeUnknown, StaleSession):
                continue
            if epoch is None:
                raise ConfigError(
                    f"another broker with broker.id={self.config.broker_id} is registered; "
                    "stop it or choose another broker.id"
                )
            self._registered(epoch)
            return

    async def _registration(self, path: str, data: bytes, generation: int) -> int | None:
        """The czxid of our node, made now or before; None when it is another session's."""
        try:
            _, stat = await self.coordination.create(
                path, data, ephemeral=True, generation=generation
            )
        except NodeExists:
            return await self._held_by_us(path)
        return stat.czxid

    async def _held_by_us(self, path: str) -> int | None:
        """Our registration's czxid, or None when the node is another session's (one of ours is deleted) or gone."""
        stat = await self.coordination.exists(path)
        if stat is None:
            return None
        if stat.ephemeral_owner == self.coordination.session_id:
            return stat.czxid
        if stat.ephemeral_owner in self._former_sessions:
            try:
                await self.coordination.delete(path, stat.version)
            except CoordinationError as error:
                logger.info("registration of the former session not deleted: %s", error)
        return None

    async def _wait_until_gone(self, path: str) -> bool:
        """Wait for a predecessor's session to expire; False when its node is gone, True after the longest wait."""
        deadline = self.clock.now() + self.coordination.session_timeout_ms + 2000
        while self.clock.now() < deadline:
            if await self.coordination.exists(path) is None:
                return False
            await self.clock.sleep(100)
        return True

    def _registered(self, epoch: int) -> None:
        self._former_sessions.add(self.coordination.session_id)
        self.info = replace(self.info, epoch=epoch)
        self.replicas.broker_epoch = epoch
        self._has_registered.set()
        logger.info("registered broker %d, epoch %d", self.config.broker_id, epoch)
        self._note("registered", broker_epoch=epoch, session=f"{self.coordination.session_id:#x}")

    def _note(self, fact: str, **what: object) -> None:
        """One line of the ledger about this broker itself."""
        self.ledger.record(BROKER, "", {"fact": fact, **what})

    async def _session_events(self) -> None:
        """Register anew in every new session (C35)."""
        generation = self.coordination.generation
        with suppress(Closed):
            async for event in self.coordination.events():
                if event.state is SessionState.CONNECTED and event.generation != generation:
                    generation = event.generation
                    logger.warning("the ZooKeeper session had expired, registering again")
                    self._note("session lost")
                    self._keep_session()
                    await self._register()

    # ---- the control plane

    async def _carry_out(self, request: ControllerRequest) -> ControllerResponse:
        """Raises KafkaError (NETWORK_EXCEPTION: to be sent again) when ZooKeeper does not answer meanwhile."""
        try:
            return await self.replicas.handle(request)
        except CoordinationError as error:
            told = f"ZooKeeper was not there to carry it out: {type(error).__name__} {error}"
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, told) from error

    async def on_call(self, call: Call) -> dict[str, Any]:
        """One control-plane call. Raises KafkaError for a call that cannot be served."""
        if call.method in messages.STATE_CHANGES:
            request = messages.decode(call.method, call.body)
            await (
                self._has_registered.wait()
            )  # before, it was meant for a former process of this broker
            await self.gate.reached(AT_BROKER, call.method)
            return messages.encode_response(await self._carry_out(request))
        if call.method == messages.CONTROLLED_SHUTDOWN:
            remaining = await self.controller.controlled_shutdown(
                *messages.decode_controlled_shutdown(call.body)
            )
            return messages.encode_remaining(remaining)
        if call.method == messages.CREATE_TOPICS:
            return await self.admin.auto_create.handle_create_topics(call.body)
        if call.method == messages.STATE:
            return self.describe()
        if call.method == messages.EXPLAIN:
            return self.explain(partition_asked(call.body))
        if call.method == messages.PLAN:
            return {"lines": await self.controller.plan(call.body)}
        if call.method in messages.GATE_CALLS:
            return await self.gate.serve(call, self.clock)
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown control-plane method {call.method!r}")

    def describe(self) -> dict[str, Any]:
        """What `minikafka status` shows of this broker."""
        return {
            "broker_id": self.config.broker_id,
            "broker_epoch": self.info.epoch,
            "controller_id": self.controller.controller_id,
            "controller_epoch": self.controller.epoch
            if self.controller.is_active
            else self.replicas.controller_epoch,
            "is_controller": self.controller.is_active,
            "session_state": self.coordination.state.value,
            "live_brokers": sorted(self.metadata.brokers),
            "backlog": self.controller.backlog(),
            "controller": self.controller.summary(),
            "metrics": gauges(self.controller, self.replicas),
            "replicas": rows_of(self.replicas),
        }

    def explain(self, tp: TopicPartition) -> dict[str, Any]:
        """What `minikafka why` hears of one partition from this broker."""
        return {
            "broker_id": self.config.broker_id,
            "session_state": self.coordination.state.value,
            "controller_id": self.controller.controller_id,
            "live_brokers": sorted(self.metadata.brokers),
            "leaving": self.replicas.leaving,
            "replica": replica_of(self.replicas, self.config, tp, self.clock.now()),
            "metadata": metadata_of(self.metadata, tp),
            "settings": settings_of(self.replicas, self.config, tp),
            "controller": self.controller.view(tp),
            "held_at": self.gate.waiting,
            "backlog": self.controller.backlog(),
        }

    # ---- stop

    async def shutdown(self, *, controlled: bool = True) -> None:
        """Hand leaderships over if asked, then stop everything and mark the shutdown as clean."""
        if self._stopping:
            return
        self._stopping = True
        if controlled and self.config.controlled_shutdown_enable:
            await self._controlled_shutdown()
        self.gate.open()
        await self.controller.close()
        await self.listener.close()
        await self.replicas.close()
        await self.coordination.close()
        await self.control_plane.close()
        await self.tasks.close()
        await self.logs.close()
        self._note("stopped", controlled=controlled)
        self.ledger.close()

    async def _controlled_shutdown(self) -> None:
        """Ask the controller to move every leadership away; after the retries stop all the same (R23)."""
        config = self.config
        self.replicas.leaving = True
        for attempt in range(config.controlled_shutdown_max_retries + 1):
            if attempt:
                await self.clock.sleep(config.controlled_shutdown_retry_backoff_ms)
            self._note("controlled shutdown asked", attempt=attempt + 1)
            try:
                remaining = await self._ask_to_shut_down()
            except (OSError, KafkaError, CoordinationError) as error:
                logger.warning("controlled shutdown, attempt %d: %s", attempt + 1, error)
                self._note("controlled shutdown answered", attempt=attempt + 1, error=str(error))
                continue
            self._note_remaining(attempt + 1, remaining)
            if not remaining:
                return
            logger.warning(
                "controlled shutdown, attempt %d: still leading %d partitions",
                attempt + 1,
                len(remaining),
            )

    def _note_remaining(self, attempt: int, remaining: list[TopicPartition]) -> None:
        for run, part in in_parts(remaining):
            left = by_topic(run)
            self._note("controlled shutdown answered", attempt=attempt, still_leading=left, **part)

    async def _ask_to_shut_down(self) -> list[TopicPartition]:
        if self.controller.is_active:
            return await self.controller.controlled_shutdown(self.config.broker_id, self.info.epoch)
        controller = self.metadata.brokers.get(self.controller.controller_id)
        listener = self.config.endpoints.control.name
        endpoint = controller.endpoint(listener) if controller else None
        if endpoint is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "no controller is known")
        call = self.control_plane.call(
            endpoint.host,
            endpoint.port,
            messages.CONTROLLED_SHUTDOWN,
            messages.encode_controlled_shutdown(self.config.broker_id, self.info.epoch),
            timeout_ms=_CALL_TIMEOUT_MS,
        )
        return messages.decode_remaining(await self._while_it_rules(call))

    async def _while_it_rules(self, call: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        """The controller's answer. Raises NOT_CONTROLLER when it loses its office before it answers."""
        try:
            async with asyncio.timeout(None) as term:
                self.controller.when_moved = lambda: term.reschedule(0)
                return await call
        except TimeoutError:
            if term.expired():
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "it lost its office unheard") from None
            raise
        finally:
            self.controller.when_moved = None


def _session(note: bytes) -> tuple[int, bytes]:
    """Id and password as `_keep_session` wrote them. Raises ValueError, KeyError, TypeError for anything else."""
    former = json.loads(note)
    session_id, password = former["id"], bytes.fromhex(former["password"])
    if type(session_id) is not int or session_id == 0 or session_id not in _SESSION_IDS:
        raise ValueError("no id of a session")
    if len(password) > _PASSWORD_BYTES:
        raise ValueError("no password of a session")
    return session_id, password
