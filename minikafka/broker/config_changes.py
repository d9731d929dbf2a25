"""Settings that change while the broker runs: it watches `/config/changes` and applies what is told there (R71).

A notification only says whose settings were written; the settings are read again, so that several of one
kind are one, and reading too often does no harm. Invariants: the watch is set before the names are read,
and the names before the settings, so nothing is missed; a name counts as seen only when it was applied.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import Closed, CoordinationError, KafkaError
from minikafka.base.ports import (
    Check,
    Clock,
    Coordination,
    Delete,
    Ledger,
    Tasks,
    WatchKind,
    WatchSignal,
)
from minikafka.broker.admin.fenced import fenced_multi
from minikafka.broker.dynamic_config import DynamicConfig
from minikafka.ledger.record import NOTHING
from minikafka.zk import layout

logger = logging.getLogger(__name__)

KEPT_MS: Final = 15 * 60_000
"""Age at which the controller removes a notification; Kafka's `DefaultChangeExpirationMs`."""
_PURGED_AT_ONCE: Final = 500
_AFTER_FAILURE_MS: Final = 200
_UNCLEAN: Final = "unclean.leader.election.enable"


class Replicas(Protocol):
    """The replicas that live by the settings (`broker/replicas.py`)."""

    async def topics_configured(self, topics: Sequence[str] | None) -> None:
        """These topics' settings were written, None: perhaps any. Raises CoordinationError."""

    def inherit(self, config: BrokerConfig) -> None:
        """Topics inherit from these values from now on."""


class Controller(Protocol):
    """The controller candidate of this broker (`broker/zk_controller/`)."""

    @property
    def is_active(self) -> bool:
        """Whether this broker rules."""

    @property
    def generation(self) -> int:
        """Session generation of its term."""

    def fence(self) -> Check:
        """The check that every write of the controller carries. Raises KafkaError(NOT_CONTROLLER)."""

    def inherit(self, config: BrokerConfig) -> None:
        """Topics inherit from these values from now on."""

    def unclean_election_enabled(self, topics: Sequence[str] | None) -> None:
        """It was turned on for these topics, None for the cluster (R63)."""


class ConfigChanges:
    """Follows the notifications for one broker."""

    def __init__(
        self,
        coordination: Coordination,
        clock: Clock,
        tasks: Tasks,
        settings: DynamicConfig,
        replicas: Replicas,
        controller: Controller,
        ledger: Ledger = NOTHING,
    ) -> None:
        self._coordination = coordination
        self._clock = clock
        self._tasks = tasks
        self._settings = settings
        self._replicas = replicas
        self._controller = controller
        self._ledger = ledger
        self._seen: dict[str, int] = {}
        """Notifications that were applied, and when they were made, Unix milliseconds."""
        self._applying = asyncio.Lock()
        self._has_started = asyncio.Event()

    async def start(self) -> None:
        """Watch from now on; returns when this broker's own settings are in force."""
        self._tasks.spawn(self._run(), "config-changes")
        await self._has_started.wait()

    async def _run(self) -> None:
        signal = WatchSignal.RESYNC
        while True:
            try:
                signal = await self._follow(signal)
            except Closed:
                return
            except CoordinationError as error:
                logger.info(
                    "changes of settings cannot be read: %s %s", type(error).__name__, error
                )
                signal = WatchSignal.RESYNC
                await self._clock.sleep(_AFTER_FAILURE_MS)
                await self._coordination.connected()

    async def _follow(self, signal: WatchSignal) -> WatchSignal:
        """Apply what is new, all of it after a resync, and wait for the next change."""
        watch = self._coordination.watch(WatchKind.CHILDREN, layout.CONFIG_CHANGES)
        names, _ = await self._coordination.children(layout.CONFIG_CHANGES, watch=True)
        if signal is WatchSignal.RESYNC:  # notifications may have come and gone unseen
            async with self._applying:
                await self._read_brokers()
                await self._replicas.topics_configured(None)
        await self._apply(names)
        self._has_started.set()
        await self._purge()
        return await watch.wait()

    async def apply_now(self) -> None:
        """Apply what was written until now, without waiting for the watch. Raises CoordinationError."""
        names, _ = await self._coordination.children(layout.CONFIG_CHANGES)
        await self._apply(names)

    # ---- applying

    async def _apply(self, names: Sequence[str]) -> None:
        async with self._applying:
            new = await self._read([name for name in names if name not in self._seen])
            changed = {entity for _, entity in new.values() if entity is not None}
            topics = sorted(name for kind, name in changed if kind == "topics")
            if topics:
                await self._replicas.topics_configured(topics)
                await self._tell_unclean(topics)
            own = (layout.ALL_BROKERS, str(self._settings.static.broker_id))
            if any(kind == "brokers" and name in own for kind, name in changed):
                await self._read_brokers()
            there = set(names)
            kept = {name: made for name, made in self._seen.items() if name in there}
            self._seen = kept | {name: made for name, (made, _) in new.items()}

    async def _read(self, names: Iterable[str]) -> dict[str, tuple[int, tuple[str, str] | None]]:
        """Name → (when it was made, what it is about: None for what no broker can read)."""
        wanted = list(names)
        nodes = await self._coordination.get_many(
            [f"{layout.CONFIG_CHANGES}/{name}" for name in wanted]
        )
        read: dict[str, tuple[int, tuple[str, str] | None]] = {}
        for name, node in zip(wanted, nodes, strict=True):
            if node is None:
                continue
            read[name] = node[1].ctime, None
            try:
                read[name] = node[1].ctime, layout.decode_config_change(node[0])
            except ValueError as error:
                logger.error("notification %s is not readable: %s", name, error)
        return read

    async def _read_brokers(self) -> None:
        """This broker's own settings, and those of all brokers."""
        names = (layout.ALL_BROKERS, str(self._settings.static.broker_id))
        nodes = await self._coordination.get_many(list(map(layout.broker_config_path, names)))
        cluster, own = (_decoded(*pair) for pair in zip(names, nodes, strict=True))
        before = self._settings.current
        if not self._settings.load(cluster, own):
            return
        after = self._settings.current
        logger.info("dynamic settings are now %s", {**self._settings.cluster, **self._settings.own})
        self._controller.inherit(after)
        self._replicas.inherit(after)
        if after.unclean_leader_election_enable and not before.unclean_leader_election_enable:
            self._controller.unclean_election_enabled(None)

    async def _tell_unclean(self, topics: Sequence[str]) -> None:
        """Topics that say themselves that anyone may lead are elected at once, by the controller (R63)."""
        if not self._controller.is_active:
            return
        nodes = await self._coordination.get_many(list(map(layout.topic_config_path, topics)))
        enabled = [
            topic
            for topic, node in zip(topics, nodes, strict=True)
            if _decoded(topic, node).get(_UNCLEAN, "").strip().lower() == "true"
        ]
        if enabled:
            self._controller.unclean_election_enabled(enabled)

    # ---- purging

    async def _purge(self) -> None:
        """The controller removes what every broker must have seen by now."""
        oldest = self._clock.wall_ms() - KEPT_MS
        old = [name for name, made in self._seen.items() if made < oldest][:_PURGED_AT_ONCE]
        if not old or not self._controller.is_active:
            return
        deletes = [Delete(f"{layout.CONFIG_CHANGES}/{name}", -1) for name in old]
        try:
            check, generation = self._controller.fence(), self._controller.generation
            await fenced_multi(self._coordination, self._ledger, check, deletes, generation)
        except (KafkaError, CoordinationError) as error:
            logger.info("old notifications of changed settings stay for now: %s", error)


def _decoded(name: str, node: tuple[bytes, object] | None) -> dict[str, str]:
    try:
        return layout.decode_config(node[0]) if node is not None else {}
    except ValueError as error:
        logger.error("the settings node of %s is not readable: %s", name, error)
        return {}
