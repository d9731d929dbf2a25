"""One broker: its parts, and the order in which they start and stop.

A start has two stages. `create_broker` joins the cluster, which needs only the log directories, the ledger and
the coordination mode. It returns a `BrokerServer` with all its parts. `BrokerServer.start` then makes the broker
listen and register. Clock, randomness, storage, transport, tasks and mode are arguments, so that production and
in-memory tests run the same broker. Invariant: the broker is registered only while it can serve requests, and
moves its leaderships to other brokers before it leaves the cluster.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from enum import IntEnum
from functools import cached_property
from typing import Any, Final

from minikafka.base.config import BrokerConfig
from minikafka.base.endpoints import Endpoint, not_opened
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.metrics import Metrics, prometheus_text
from minikafka.base.model import Broker as BrokerInfo
from minikafka.base.ports import Call, Listener
from minikafka.broker.admin import BrokerAdmin
from minikafka.broker.admin.auto_create import AutoCreate
from minikafka.broker.admin.configs import ConfigAdmin
from minikafka.broker.admin.partitions import PartitionAdmin
from minikafka.broker.admin.quotas import QuotaAdmin
from minikafka.broker.admin.topics import TopicAdmin
from minikafka.broker.admin.users import UserAdmin
from minikafka.broker.capabilities import CoordinationMode
from minikafka.broker.clients.access import Access, authorizer_of
from minikafka.broker.clients.delegation_tokens import DelegationTokens
from minikafka.broker.clients.quotas import BrokerQuotas
from minikafka.broker.clock_offsets import ClockOffsets
from minikafka.broker.controlled_shutdown import ControlledShutdown, note
from minikafka.broker.controller_client import ControllerClient
from minikafka.broker.coordinators.group_host import GroupHost, offsets_topic
from minikafka.broker.coordinators.group_lags import GroupLags
from minikafka.broker.coordinators.internal_topic import InternalTopic
from minikafka.broker.coordinators.markers import MarkerAppends, MarkerSender
from minikafka.broker.coordinators.peer_calls import OtherBrokers
from minikafka.broker.coordinators.transaction_host import (
    ProducerIds,
    TransactionHost,
    transactions_topic,
)
from minikafka.broker.coordinators.verification import TransactionVerifier
from minikafka.broker.ledger.record import BROKER
from minikafka.broker.ledger.writer import LedgerWriter, directory_of
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.network.admission import AuthenticationLog
from minikafka.broker.network.connection_quotas import ConnectionQuotas
from minikafka.broker.network.connection_room import ConnectionRoom
from minikafka.broker.network.fresh_metadata import with_fresh_metadata
from minikafka.broker.network.listener import HANDLERS, KafkaListener
from minikafka.broker.network.metrics_readers import MetricsReaders
from minikafka.broker.on_demand import OnDemand
from minikafka.broker.ports import BrokerPorts
from minikafka.broker.replicas.log_cleaner import LogCleaner
from minikafka.broker.replicas.manager import ReplicaManager
from minikafka.broker.replicas.orders import ReplicaOrders
from minikafka.broker.reports.broker_reports import BrokerReports
from minikafka.broker.reports.certificates import CertificateReport
from minikafka.broker.reports.controller_gauges import register_controller_gauges
from minikafka.broker.reports.gauges import register_gauges
from minikafka.broker.reports.leader_ends import LeaderEnds
from minikafka.broker.reports.links import Links
from minikafka.broker.reports.partition_report import (
    group_asked,
    partition_asked,
)
from minikafka.broker.reports.reachability import Reachability
from minikafka.broker.reports.request_metrics import RequestMetrics
from minikafka.broker.rpc import coordinator_calls, disk_faults, links, messages, time_calls
from minikafka.broker.security import BrokerSecurity
from minikafka.broker.services import Services
from minikafka.broker.settings.config_updates import ConfigUpdates
from minikafka.broker.settings.dynamic_config import DynamicConfig
from minikafka.broker.step_gate import StepGate
from minikafka.deciders.groups.events import TopicsDeleted
from minikafka.storage.log.manager import LogManager

logger = logging.getLogger(__name__)

_UNKNOWN: Final = "no controller reaches %s: correct its host in listeners or advertised.listeners, or the network"
_METRICS_PERIOD_MS: Final = 60_000
"""Length of one period of the histograms. Their quantiles cover the current and the previous period."""


class BrokerState(IntEnum):
    """The states of a broker, with Kafka's numbers."""

    STARTING = 1
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


async def create_broker(
    config: BrokerConfig, ports: BrokerPorts, mode: CoordinationMode
) -> BrokerServer:
    """Join the cluster, recover the logs, and return the broker. `BrokerServer.start` makes it listen and register.

    Raises ConfigError, StorageFailed, CoordinationError. After an error, the caller closes `ports.tasks`.
    """
    security = BrokerSecurity(config, ports)  # before `join` writes into a new cluster
    ledger_directory = directory_of(config.log_dirs[0])
    ledger = LedgerWriter(ports.storage, ledger_directory, config.broker_id, ports.clock)
    logs = LogManager(ports.storage, config, ports.clock, ports.executor)
    logs.lock()  # an earlier process may still run: fail before `join` ends its session
    logs.check_coordination()  # before `join` writes the mode into a new cluster
    ledger.open()
    ledger.record(BROKER, "", {"fact": "started"})
    cluster_id = await mode.join(logs.known_cluster_id())
    logger.info("joined the cluster %s", cluster_id)
    await logs.start(cluster_id)
    return BrokerServer(config, ports, mode, cluster_id, logs, ledger, security)


class BrokerServer(BrokerReports):
    """A broker that has joined its cluster and recovered its logs, created by `create_broker`."""

    def __init__(
        self,
        config: BrokerConfig,
        ports: BrokerPorts,
        mode: CoordinationMode,
        cluster_id: str,
        logs: LogManager,
        ledger: LedgerWriter,
        security: BrokerSecurity,
    ) -> None:
        self.config = config
        self.security = security
        self.clock, self.tasks = ports.clock, ports.tasks
        self._set_disk_faults = ports.set_disk_faults
        self.logs = logs
        self.ledger = ledger
        self.gate = StepGate()
        self.control_plane = ports.new_control_plane(cluster_id, security.control)
        capabilities = self.capabilities = mode.capabilities(self.control_plane, ledger, self.gate)
        self.settings = DynamicConfig(config)
        self.metadata = MetadataCache(ports.clock)
        self.metadata.source = capabilities.metadata
        self.replicas = ReplicaManager(
            config, ports, logs, self.metadata, capabilities, ledger, security.connector
        )
        self.cleaner = self._new_cleaner(ports)
        self.replicas.roles.add(self.cleaner)
        self.state = BrokerState.STARTING
        id_, control = config.broker_id, config.endpoints.control.name
        self.reachability = Reachability(id_, self.metadata, ports.transport, control)
        self.clock_offsets = ClockOffsets(id_, self.metadata, self.control_plane, control)
        self.metrics = Metrics()
        self.requests = RequestMetrics(self.metrics)
        self.certificates = CertificateReport(lambda: security.encryption, ports.clock)
        self._register_metrics()
        self.producer_ids = ProducerIds(capabilities.claim_producer_ids)
        self.tokens = self._new_tokens(ports)
        self._logins = AuthenticationLog(ports.clock, self.metrics)
        self.quotas = BrokerQuotas(config, ports.clock, self.metrics, self.requests.throttle_times)
        self.config_updates = self._new_config_updates()
        self.config_changes = capabilities.configs.changes(self.config_updates)
        self._controller_client = self._new_controller_client(control)
        self._controlled_shutdown = self._new_controlled_shutdown()
        self.admin = self._new_admin(ports)
        others = OtherBrokers(self.metadata, self.control_plane, control)
        self.marker_appends = MarkerAppends(self.replicas, ports.clock, self.admin.pauses)
        self.markers = self._new_marker_sender(others)
        self.transactions = self._new_transactions()
        self.verifier = self._new_verifier(others)
        self.groups = self._new_groups(ports)
        self.leader_ends = LeaderEnds(config.broker_id, self.replicas, self.metadata, others)
        self.lags = GroupLags(
            self.metrics, self.groups.context.groups, self.leader_ends.read, ports.clock
        )
        self.listener = self._new_listener(ports, cluster_id)
        self._readers = MetricsReaders(
            security.admissions.values(),
            security.accounts.credentials,
            self.access,
            self._logins,
            ports,
            config,
        )
        self.replicas.on_shortage = self.listener.free_descriptors
        self.config_updates.limit_connections = self.listener.limit_connections
        self.links = self._new_links()
        versions = config.protocol_versions
        self.info = BrokerInfo(config.broker_id, (), rack=config.broker_rack, versions=versions)
        """This broker's registration: its endpoints (none until it listens) and its latest broker epoch."""
        self._is_stopping = False

    def _new_cleaner(self, ports: BrokerPorts) -> LogCleaner:
        return LogCleaner(
            ports,
            self.replicas.turns,
            self.logs,
            self.replicas.partitions,
            lambda: self.settings.current,
            self.replicas.purgatory.storage_failed,
        )

    def _new_links(self) -> Links:
        return Links(
            self.config.broker_id,
            self.metadata,
            self.replicas.fetchers,
            self.capabilities.lifecycle,
            self.control_plane,
            self.clock,
            self.ledger,
            lambda: self.info.epoch,
            self._unregistered,
        )

    def _new_tokens(self, ports: BrokerPorts) -> DelegationTokens:
        return DelegationTokens(
            self.config,
            self.security.accounts.tokens,
            self.capabilities.tokens,
            self.capabilities.administration,
            ports.clock,
            ports.rng,
        )

    def _new_config_updates(self) -> ConfigUpdates:
        administration, known = self.capabilities.administration, self.security.accounts.credentials
        return ConfigUpdates(
            self.settings, self.replicas, administration, known, self.security.stores, self.quotas
        )

    def _register_metrics(self) -> None:
        self.metrics.gauge(
            "kafka.server:type=KafkaServer,name=BrokerState",
            "1 while the broker starts, 3 while it runs, 6 while it hands over its leaderships, 7 while it stops.",
            lambda: self.state.value,
        )
        self.requests.add_produce(self.replicas.purgatory)
        register_controller_gauges(self.metrics, self.capabilities.diagnostics)
        register_gauges(self.metrics, self.replicas)
        self.cleaner.register(self.metrics)
        self.clock_offsets.register(self.metrics)
        self.certificates.register(self.metrics)

    def _new_controller_client(self, listener: str) -> ControllerClient:
        return ControllerClient(
            self.config.broker_id,
            self.capabilities.administration,
            self.metadata,
            self.control_plane,
            listener,
            self.on_call,
        )

    def _new_controlled_shutdown(self) -> ControlledShutdown:
        return ControlledShutdown(self.config, self.clock, self._controller_client, self.ledger)

    def _new_admin(self, ports: BrokerPorts) -> BrokerAdmin:
        topic_store, configs = self.capabilities.topics, self.capabilities.configs
        administration = self.capabilities.administration
        pauses = self.replicas.turns.parts
        topics = TopicAdmin(
            topic_store, administration, self.metadata, self.settings, ports.rng, pauses
        )
        auto_create = AutoCreate(
            topics, self._controller_client, self.metadata, self.config, self.tasks
        )
        return BrokerAdmin(
            topics,
            auto_create,
            PartitionAdmin(topic_store, administration, self.metadata, pauses),
            ConfigAdmin(
                configs,
                self.metadata,
                self.settings,
                self.config_changes.apply_now,
                pauses,
                self.security.stores,
            ),
            UserAdmin(configs, administration, self.config_changes.apply_now, pauses),
            QuotaAdmin(configs, self.quotas, self.config_changes.apply_now, pauses),
            pauses,
        )

    def _new_groups(self, ports: BrokerPorts) -> GroupHost:
        groups = GroupHost(
            self.config,
            self.replicas,
            InternalTopic(offsets_topic(self.config), self.metadata, self.admin.auto_create),
            self.clock,
            ports.rng,
            self.tasks,
            self.ledger,
            self.metrics,
            self.verifier,
        )
        self.metadata.on_topics_deleted(lambda topics: groups.handle(TopicsDeleted(topics)))
        return groups

    def _new_marker_sender(self, others: OtherBrokers) -> MarkerSender:
        return MarkerSender(
            self.config.broker_id,
            self.marker_appends,
            self.metadata,
            self.capabilities.metadata,
            others,
            self.gate,
            self.clock,
            self.tasks,
        )

    def _new_transactions(self) -> TransactionHost:
        return TransactionHost(
            self.config,
            self.replicas,
            InternalTopic(transactions_topic(self.config), self.metadata, self.admin.auto_create),
            self.clock,
            self.tasks,
            self.producer_ids,
            self.markers,
            self.gate,
        )

    def _new_verifier(self, others: OtherBrokers) -> TransactionVerifier:
        return TransactionVerifier(
            self.config.broker_id,
            self.metadata,
            others,
            self.tasks,
            self.transactions,
            self.settings,
        )

    def _new_listener(self, ports: BrokerPorts, cluster_id: str) -> KafkaListener:
        room = ConnectionRoom(ports.descriptors, ports.clock, self.config.max_connections)
        room.register(self.metrics)
        services = self._new_services(ports, cluster_id)
        places = ConnectionQuotas(self.config, ports.clock, self.quotas)
        places.register(self.metrics)
        listener = KafkaListener(services, self.replicas, ports, room, places, self._logins)
        if (source := self.capabilities.metadata) is not None:
            listener.handlers.update(with_fresh_metadata(HANDLERS, source))
        return listener

    def _new_services(self, ports: BrokerPorts, cluster_id: str) -> Services:
        self.access = Access(authorizer_of(self.config), self.metrics)
        return Services(
            broker_id=self.config.broker_id,
            cluster_id=cluster_id,
            config=self.config,
            settings=self.settings,
            clock=self.clock,
            rng=ports.rng,
            replicas=self.replicas,
            metadata=self.metadata,
            admin=self.admin,
            producer_ids=self.producer_ids,
            groups=self.groups,
            transactions=self.transactions,
            verifier=self.verifier,
            marker_appends=self.marker_appends,
            tokens=self.tokens,
            administration=self.capabilities.administration,
            acls=self.capabilities.acls,
            access=self.access,
            control_plane=self.control_plane,
            requests=self.requests,
            quotas=self.quotas,
            pauses=self.admin.pauses,
            reports=self,
        )

    # ---- start

    async def start(self) -> None:
        """Listen and register; return once the controller knows this broker.

        Raises ConfigError, OSError (a port in use), CoordinationError.
        """
        if self.access.authorizer is not None:
            await self.capabilities.acls.start(self.access.authorizer)
        await self.security.accounts.bearers.start()
        await self.tokens.start()
        endpoints = self.config.endpoints
        control = endpoints.control
        serving = await self._serve_control(control)
        await self.config_changes.start()  # before clients log in: it reads their credentials
        ports = await self.listener.start(endpoints.kafka, self.security.admissions)
        ports[control.name] = serving.port
        self.info = replace(self.info, endpoints=endpoints.registered(ports))
        self.replicas.start()
        self.cleaner.start()
        self.tasks.spawn(self.producer_ids.prepare(), "producer-ids")
        if self.tokens.known is not None:
            self.tasks.spawn(self.tokens.run(), "expired-tokens")
        self.tasks.spawn(self._rotate_metrics(), "metrics")
        self.tasks.spawn(self.clock_offsets.run(), "clock-offsets")
        self.tasks.spawn(self.links.run(), "links")
        self.tasks.spawn(self.reachability.run(), "reachability")
        lifecycle = self.capabilities.lifecycle
        orders = ReplicaOrders(self.replicas, self.capabilities.topics, self.clock)
        await self.capabilities.roles.start(orders)
        await lifecycle.start(self.info, self._registered)
        if not await self.metadata.wait_until(self._is_known, 2 * lifecycle.session_timeout_ms):
            logger.warning(_UNKNOWN, self.info.endpoint(control.name))
        if not self._is_stopping:
            self.state = BrokerState.RUNNING

    async def _serve_control(self, control: Endpoint) -> Listener:
        page = self._metrics_page if self.config.minikafka_metrics_enable else None
        refusal = self._readers.refusal if self.config.is_secured else None
        try:
            return await self.control_plane.serve(
                self.on_call, control.host, control.port, page, refusal
            )
        except OSError as error:
            raise not_opened(control, error) from error

    def _registered(self, epoch: int) -> None:
        self.info = replace(self.info, epoch=epoch)

    def _unregistered(self) -> None:
        """Stop leading, and send clients to the other brokers: they have replaced this one, which has no session."""
        logger.warning("this broker is no longer registered and leads nothing until it is")
        led = [tp for tp, one in self.replicas.partitions.items() if one.is_leader]
        self.replicas.end_roles(led)
        self.metadata.leave(self.config.broker_id)

    def _is_known(self) -> bool:
        """True once the metadata contains the latest registration of this broker."""
        known = self.metadata.brokers.get(self.config.broker_id)
        return known is not None and known.epoch >= self.info.epoch

    async def _metrics_page(self) -> AsyncIterator[str]:
        await self.lags.refresh()
        for piece in prometheus_text(self.metrics):
            yield piece

    async def _rotate_metrics(self) -> None:
        """Drop old values from the histograms periodically, so that quantiles cover only the last minutes."""
        while True:
            await self.clock.sleep(_METRICS_PERIOD_MS)
            self.metrics.rotate()

    # ---- the control plane

    async def on_call(self, call: Call) -> dict[str, Any]:
        """Return the response to one control-plane call. Raises KafkaError if the call cannot be served."""
        if call.method in self.capabilities.roles.calls:
            return await self.capabilities.roles.calls[call.method](call)
        if call.method in coordinator_calls.CALLS:
            return await self._serve_coordinator(call)
        if call.method == messages.CONTROLLED_SHUTDOWN:
            leaving = messages.decode_registration(call.body)
            administration = self.capabilities.administration
            remaining = await administration.controlled_shutdown(*leaving)
            return messages.encode_remaining(remaining)
        if call.method == messages.CREATE_TOPICS:
            return await self.admin.auto_create.handle_create_topics(call.body)
        if call.method in self._reports:
            return self._reports[call.method](call.body)
        if call.method == messages.PLAN:
            return {"lines": await self.plan(call.body)}
        if call.method == messages.RECONFIGURE:
            changes = self.config_updates.file_changed(messages.decode_settings(call.body))
            return messages.encode_changes(changes)
        if call.method in messages.GATE_CALLS:
            return await self.gate.serve(call, self.clock)
        if call.method in time_calls.CALLS:
            return await self._on_demand.serve(call)
        if call.method == disk_faults.DISK_FAULTS:
            return disk_faults.serve(call.body, self._set_disk_faults)
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown control-plane method {call.method!r}")

    @cached_property
    def _on_demand(self) -> OnDemand:
        """Does at once what only time would do."""
        return OnDemand(
            self.config,
            self.clock,
            self.replicas,
            self.cleaner,
            self.groups,
            self.transactions,
            self.tokens,
            self.config_changes.apply_now,
        )

    @cached_property
    def _reports(self) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        """The functions that answer read-only calls, by method."""
        return {
            messages.STATE: lambda body: self.describe(body.get("since")),
            messages.EXPLAIN: lambda body: self.explain(partition_asked(body)),
            messages.EXPLAIN_GROUP: lambda body: self.explain_group(group_asked(body)),
            links.LINKS: self.links.serve,
            messages.LOG_ENDS: lambda body: messages.encode_ends(
                self.leader_ends.own(messages.decode_ends_asked(body))
            ),
        }

    async def _serve_coordinator(self, call: Call) -> dict[str, Any]:
        if call.method == coordinator_calls.WRITE_MARKERS:
            return await self.marker_appends.serve(call.body)
        return await self.verifier.serve(call.body)

    # ---- stop

    async def shutdown(self, *, controlled: bool = True) -> None:
        """Stop every part, and mark the shutdown as clean.

        If `controlled` and `controlled.shutdown.enable` are true, first move the leaderships to other brokers.
        """
        if self._is_stopping:
            return
        self._is_stopping = True
        note(self.ledger, "stopping", controlled=controlled)
        if controlled and self.config.controlled_shutdown_enable:
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            self.replicas.leaving = True
            await self._controlled_shutdown.run(lambda: self.info.epoch)
        self.state = BrokerState.SHUTTING_DOWN
        self.gate.open()
        await self.capabilities.lifecycle.resign()
        await self.listener.close()
        await self.cleaner.close()
        await self.replicas.close()
        await self.capabilities.lifecycle.stop()
        await self.control_plane.close()
        await self.tasks.close()
        await self.logs.close()
        note(self.ledger, "stopped", controlled=controlled)
        self.ledger.close()
