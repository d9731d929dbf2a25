"""The registration of one broker, repeated in every new session (A1, R10, C35).

The broker epoch is the czxid of the registration node. Invariant: the node of another living broker is never deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NoReturn

from minikafka.base.errors import (
    Closed,
    ConfigError,
    CoordinationError,
    NodeExists,
    NotConnected,
    OutcomeUnknown,
    StaleSession,
)
from minikafka.base.model import Broker, BrokerId
from minikafka.base.ports import Clock, SessionState, ZooKeeper
from minikafka.broker.clock_offsets import WARN_MS
from minikafka.broker.ledger.record import BROKER
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.broker.modes.zookeeper.session_file import SessionFile
from minikafka.zookeeper.nodes import layout, registrations
from minikafka.zookeeper.nodes.faults import Faults

logger = logging.getLogger(__name__)

_POLL_MS: Final = 100
_MORE_THAN_A_SESSION_MS: Final = 2_000
"""Milliseconds added to the session timeout when waiting for another session of this broker id to expire."""


class Registration:
    """Registers `broker` in every session, and calls `on_registered(broker_epoch)` after each registration."""

    def __init__(
        self,
        ports: Ports,
        session_file: SessionFile,
        broker: Broker,
        on_registered: Callable[[int], None],
        directory: str = layout.BROKER_IDS,
    ) -> None:
        self._zookeeper = ports.zookeeper
        self._session_file = session_file
        self._clock = ports.clock
        self._tasks = ports.tasks
        self._ledger = ports.ledger
        self._broker = broker
        self._on_registered = on_registered
        self._directory = directory
        self._former_sessions: set[int] = set()

    async def start(self) -> None:
        """Register now and in every later session. Raises ConfigError like `register`."""
        self._tasks.spawn(self._follow_session(), "session-events")
        await self.register()

    async def _follow_session(self) -> None:
        generation = self._zookeeper.generation
        with suppress(Closed):
            async for event in self._zookeeper.events():
                if event.state is SessionState.CONNECTED and event.generation != generation:
                    generation = event.generation
                    logger.warning("the ZooKeeper session had expired, registering again")
                    self._ledger.record(BROKER, "", {"fact": "session lost"})
                    self._session_file.write(self._zookeeper)
                    await self.register()

    async def register(self) -> None:
        """Register in the current session, once.

        Raises ConfigError if another broker has the same id, or if a registered broker has no version of the protocol
        between brokers in common with this one.
        """
        waited = False
        while True:
            generation = await self._zookeeper.connected()
            try:
                epoch = await self._create_or_find(generation)
                if epoch is None and not waited:
                    waited = await wait_until_gone(
                        self._zookeeper, self._broker.id, self._clock, self._directory
                    )
                    continue
            except (NotConnected, OutcomeUnknown, StaleSession):
                continue
            if epoch is None:
                await refuse_second(self._zookeeper, self._broker.id, self._directory)
            self._registered(epoch)
            return

    async def _create_or_find(self, generation: int) -> int | None:
        """Create the registration, unless this session has created it already; return its czxid.

        None if another session has registered the id. Raises ConfigError.
        """
        reason = await registrations.find_mismatch(self._zookeeper, self._broker, self._directory)
        if reason is not None:
            raise ConfigError(reason)
        wall_ms = self._clock.wall_ms()
        try:
            stat = await registrations.create(
                self._zookeeper, self._broker, wall_ms, generation, self._directory
            )
        except NodeExists:
            return await self._find_own()
        _compare_clocks(wall_ms - self._clock.advanced_ms, stat.ctime)
        return stat.czxid

    async def _find_own(self) -> int | None:
        """Return the czxid of the registration if this session made it, else None.

        A registration from an earlier session of this broker is deleted.
        """
        stat = await registrations.stat(self._zookeeper, self._broker.id, self._directory)
        if stat is None:
            return None
        if stat.ephemeral_owner == self._zookeeper.session_id:
            return stat.czxid
        if stat.ephemeral_owner in self._former_sessions:
            try:
                await registrations.delete(
                    self._zookeeper, self._broker.id, stat.version, self._directory
                )
            except CoordinationError as error:
                logger.info("registration of the former session not deleted: %s", error)
        return None

    def _registered(self, epoch: int) -> None:
        session_id = self._zookeeper.session_id
        self._former_sessions.add(session_id)
        self._on_registered(epoch)
        logger.info("registered broker %d, epoch %d", self._broker.id, epoch)
        fact = {"fact": "registered", "broker_epoch": epoch, "session": f"{session_id:#x}"}
        self._ledger.record(BROKER, "", fact)


async def refuse_second(
    zookeeper: ZooKeeper, broker_id: BrokerId, directory: str = layout.BROKER_IDS
) -> NoReturn:
    """Raise ConfigError that names the addresses of the other broker that has registered this id."""
    other = "whose registration is not readable"
    with suppress(CoordinationError):
        found = await registrations.read(zookeeper, [broker_id], Faults(), directory)
        if broker_id in found:
            other = ", ".join(map(str, found[broker_id].endpoints))
    raise ConfigError(
        f"broker.id = {broker_id} is used by another broker, {other}: "
        "stop that broker, or set another broker.id here"
    )


async def wait_until_gone(
    zookeeper: ZooKeeper, broker_id: BrokerId, clock: Clock, directory: str = layout.BROKER_IDS
) -> bool:
    """Wait for the session that registered this broker id to expire; return True if the wait timed out."""
    deadline = clock.now() + zookeeper.session_timeout_ms + _MORE_THAN_A_SESSION_MS
    while clock.now() < deadline:
        if await registrations.stat(zookeeper, broker_id, directory) is None:
            return False
        await clock.sleep(_POLL_MS)
    return True


def _compare_clocks(own_ms: int, zookeeper_ms: int) -> None:
    """Log a warning if ZooKeeper's clock, with which it dated the registration, is far from this broker's."""
    ahead_ms = own_ms - zookeeper_ms
    if abs(ahead_ms) >= WARN_MS:
        logger.warning(
            "the clock of this broker is %.1f s %s ZooKeeper's: set the wrong one, because retention.ms, "
            "message.timestamp.after.max.ms and the expiry of offsets follow the clock",
            abs(ahead_ms) / 1000,
            "ahead of" if ahead_ms > 0 else "behind",
        )
