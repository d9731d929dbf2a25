"""What a broker tells about itself: for `status`, `why`, `trace` and `plan`, by control call and by InspectBroker."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from functools import cached_property
from operator import itemgetter
from typing import Any

from minikafka.base.config import BrokerConfig
from minikafka.base.metrics import Metrics
from minikafka.base.model import Broker, TopicPartition
from minikafka.base.ports import Clock
from minikafka.broker.capabilities import Capabilities
from minikafka.broker.clock_offsets import ClockOffsets
from minikafka.broker.coordinators.group_host import GroupHost
from minikafka.broker.coordinators.transaction_host import TransactionHost
from minikafka.broker.ledger.pages import Page, Wanted, read_page
from minikafka.broker.ledger.writer import LedgerWriter
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.replicas.log_cleaner import LogCleaner
from minikafka.broker.replicas.manager import ReplicaManager
from minikafka.broker.reports.certificates import CertificateReport
from minikafka.broker.reports.changes import ReplicaChanges
from minikafka.broker.reports.group_report import group_report, skipped_batches
from minikafka.broker.reports.links import Links
from minikafka.broker.reports.partition_report import metadata_of, replica_of, row_of, settings_of
from minikafka.broker.reports.reachability import Reachability
from minikafka.broker.step_gate import StepGate
from minikafka.deciders.transactions.reports import transactions_with
from minikafka.storage.log.manager import LogManager


class BrokerReports:
    """The reports of a broker. `broker.BrokerServer`, which has the parts, is the only subclass."""

    config: BrokerConfig
    clock: Clock
    info: Broker
    logs: LogManager
    ledger: LedgerWriter
    gate: StepGate
    metadata: MetadataCache
    metrics: Metrics
    capabilities: Capabilities
    replicas: ReplicaManager
    cleaner: LogCleaner
    groups: GroupHost
    transactions: TransactionHost
    clock_offsets: ClockOffsets
    reachability: Reachability
    certificates: CertificateReport
    links: Links

    def describe(self, since: object = None) -> dict[str, Any]:
        """Return the report of this broker for `minikafka status`. `since`: see `replica_rows`."""
        facts, rows = self.replica_rows(since)
        replicas = sorted(rows, key=itemgetter("topic", "partition"))
        return {**self.summary(since), **facts, "replicas": replicas}

    def replica_rows(self, since: object = None) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
        """Return the state of each replica on this broker, in any order, after facts about all of them.

        `since`: a text is the `position` of an earlier answer, "" at first: only what has changed since is returned,
        and the facts say how (`ChangesSince.as_json`).
        """
        facts, partitions = {}, [*self.replicas.partitions.values()]
        if isinstance(since, str):
            changes = self._changes.since(since, self.replicas.partitions)
            facts, partitions = changes.as_json(), changes.changed
        return facts, (row_of(partition, self.cleaner.report) for partition in partitions)

    @cached_property
    def _changes(self) -> ReplicaChanges:
        return ReplicaChanges(self.clock.wall_ms())

    def summary(self, since: object = None) -> dict[str, Any]:
        """Return the report of this broker without its replicas; for an observer that asks often, without gauges."""
        diagnostics = self.capabilities.diagnostics
        epoch = diagnostics.epoch if diagnostics.is_active else self.capabilities.roles.epoch
        return {
            "broker_id": self.config.broker_id,
            "broker_epoch": self.info.epoch,
            "coordination": self.config.minikafka_coordination,
            "zookeeper": self.config.zookeeper_connect,
            "controller_id": self.capabilities.administration.controller_id,
            "controller_epoch": epoch,
            "is_controller": diagnostics.is_active,
            "session_state": self.capabilities.lifecycle.session_state,
            "live_brokers": sorted(self.metadata.brokers),
            "offline_directories": dict(self.logs.offline_directories),
            "backlog": diagnostics.backlog(),
            "controller": diagnostics.summary(),
            "clock_offsets_ms": self.clock_offsets.report(),
            "unreachable": self.reachability.report(),
            "certificates": self.certificates.near(),
            "links": self.links.report(),
            "skipped_batches": [*self.groups.skipped(), *self.transactions.skipped()],
            "metrics": self.metrics.totals() if since is None else self.metrics.counts(),
        }

    async def plan(self, question: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return what an operation would cause, as lines for `minikafka plan`. Raises KafkaError."""
        return await self.capabilities.diagnostics.plan(question)

    def ledger_page(
        self, position: str, wanted: Wanted, *, follows: bool = False
    ) -> Generator[None, None, Page]:
        """Return a page of the ledger of this broker for `minikafka trace` and `why`, in steps."""
        self.ledger.flush()
        ledger = self.ledger
        return read_page(ledger.storage, ledger.directory, position, wanted, follows=follows)

    def explain_group(self, group: str) -> dict[str, Any]:
        """Return what this broker knows about a consumer group for `minikafka why --group`."""
        now = self.clock.wall_ms()
        return group_report(self.groups, self.replicas, self.metadata, group, now)

    def explain(self, tp: TopicPartition) -> dict[str, Any]:
        """Return the report of one partition for `minikafka why`."""
        return {
            "broker_id": self.config.broker_id,
            "session_state": self.capabilities.lifecycle.session_state,
            "coordination": self.config.minikafka_coordination,
            "controller_id": self.capabilities.administration.controller_id,
            "live_brokers": sorted(self.metadata.brokers),
            "leaving": self.replicas.leaving,
            "links": self.links.report(),
            "replica": replica_of(
                self.replicas,
                self.cleaner.report,
                self.config,
                tp,
                self.clock.now(),
                self.clock.wall_ms(),
            ),
            "transactions": transactions_with(self.transactions.context, tp),
            "skipped_batches": skipped_batches(self.groups, self.transactions, tp),
            "metadata": metadata_of(self.metadata, tp),
            "settings": settings_of(self.replicas, self.config, tp),
            "controller": self.capabilities.diagnostics.view(tp),
            "held_at": self.gate.waiting,
            "backlog": self.capabilities.diagnostics.backlog(),
        }
