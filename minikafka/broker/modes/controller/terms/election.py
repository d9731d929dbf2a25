"""Controller elections from the view of one broker.

The broker that creates `/controller` and raises `/controller_epoch`, in one multi, is the controller (R1). A broker
that takes over deletes the node of the former controller in the same multi.
Invariants: the watch on `/controller` is set before the node is read, so that no change is missed. A multi that deletes
`/controller` is fenced by a version of `/controller_epoch` that was read before `/controller`, so that it never deletes
the node of a successor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from minikafka.base.errors import (
    BadVersion,
    ControllerMoved,
    MinikafkaError,
    MultiFailed,
    NodeExists,
    OutcomeUnknown,
)
from minikafka.base.model import BrokerId
from minikafka.base.ports import (
    Delete,
    MultiOp,
    Set,
    Stat,
    WatchKind,
    WatchSignal,
)
from minikafka.broker.ledger.record import ELECTION, WRITE
from minikafka.broker.modes.controller.terms.controllership import Controllership
from minikafka.broker.modes.controller.terms.lines import write_line
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.zookeeper.nodes import election, layout, registrations

logger = logging.getLogger(__name__)

NOBODY: Final = -1
"""The controller id while there is no controller."""
NO_FIELDS: Final[Mapping[str, Any]] = MappingProxyType({})


class EpochNotReadable(MinikafkaError):
    """`/controller_epoch` holds no number: no broker can be elected before an administrator repairs the node."""


class Won(NamedTuple):
    """An election that this broker won: the controller epoch, and the new version of `/controller_epoch`."""

    epoch: int
    epoch_version: int


class Former(NamedTuple):
    """A controller whose process has died: its broker id, the session of its node, its broker epoch, the evidence."""

    broker_id: BrokerId
    owner: int
    broker_epoch: int
    evidence: str


class ControllerElection:
    """Elections from the view of one broker; `on_change()` is called when `/controller` has changed."""

    def __init__(
        self,
        ports: Ports,
        on_change: Callable[[], None],
    ) -> None:
        self.controller_id: BrokerId = NOBODY
        """Id of the controller at the last read of `/controller`, -1 if there was none."""
        self.controllership = Controllership()
        """The controllership of the current controller. It ends when `controller_id` changes."""
        self._id = ports.broker_id
        self._zookeeper = ports.zookeeper
        self._clock = ports.clock
        self._ledger = ports.ledger
        self._on_change = on_change
        self._is_watching = False
        self._faults = ports.faults

    async def is_registered(self) -> bool:
        """True if this broker is registered in the current session."""
        stat = await registrations.stat(self._zookeeper, self._id)
        return stat is not None and self._is_own(stat)

    async def is_unregistered(self, broker_id: BrokerId) -> bool:
        """True if the broker is not registered. Raises CoordinationError."""
        return await registrations.stat(self._zookeeper, broker_id) is None

    async def look(self) -> Stat | None:
        """Watch and read `/controller`, and set `controller_id`; return the node's Stat, None if absent."""
        if not self._is_watching:
            self._is_watching = True
            watch = self._zookeeper.watch(WatchKind.EXISTS, layout.CONTROLLER)
            watch.on_signal(self._changed)
        stat = await self._zookeeper.exists(layout.CONTROLLER, watch=True)
        found = None
        if stat is not None:
            try:
                found = await election.read_controller(self._zookeeper)
            except ValueError as fault:
                self._faults.report(layout.CONTROLLER, fault)
                self._set_controller(NOBODY)
                return stat
            self._faults.mended(layout.CONTROLLER)
        self._set_controller(NOBODY if found is None else found.broker_id)
        return None if found is None else found.stat

    async def _read_epoch(self) -> tuple[int, int]:
        """Return the controller epoch and the version of its node. Raises EpochNotReadable, CoordinationError."""
        try:
            found = await election.read_epoch(self._zookeeper)
        except ValueError as fault:
            advice = "write the epoch of the last election to the node: the largest controller_epoch of any partition"
            self._faults.report(layout.CONTROLLER_EPOCH, f"{fault}; {advice}")
            raise EpochNotReadable(layout.CONTROLLER_EPOCH) from None
        self._faults.mended(layout.CONTROLLER_EPOCH)
        return found

    def _changed(self, _: WatchSignal) -> None:
        self._is_watching = False
        self._on_change()

    def _set_controller(self, controller_id: BrokerId) -> None:
        if controller_id != self.controller_id:
            self.controller_id = controller_id
            self.controllership.end()
            self.controllership = Controllership()

    def _is_own(self, stat: Stat) -> bool:
        return stat.ephemeral_owner == self._zookeeper.session_id

    def is_held(self, stat: Stat | None) -> bool:
        """True if `/controller`, read with this Stat, names this broker in the current session (D8, D9)."""
        return stat is not None and self._is_own(stat) and self.controller_id == self._id

    # Campaign.

    async def campaign(self, generation: int) -> Won | None:
        """Try once to become the controller; return None if this broker was not elected.

        The attempt is made only in the session with the number `generation`.
        Raises EpochNotReadable, CoordinationError.
        """
        epoch, version = await self._read_epoch()
        operations = election.candidacy(self._id, epoch + 1, version, self._clock.wall_ms())
        won = await self._elect(Won(epoch + 1, version + 1), operations, generation)
        if won is not None:
            self._set_controller(self._id)
            logger.info("broker %d is elected as the controller, epoch %d", self._id, won.epoch)
            self.note("won", won.epoch, won.epoch_version)
        return won

    async def take_over(self, generation: int, former: Former) -> Won | None:
        """Try once to replace a controller whose process has died; return None if this broker was not elected.

        Nothing is written if `/controller` is no longer the node of `former`. The attempt is made only in the session
        with the number `generation`. Raises EpochNotReadable, CoordinationError.
        """
        epoch, version = await self._read_epoch()
        try:
            found = await election.read_controller(self._zookeeper)
        except ValueError:
            return None
        if found is None or (found.broker_id, found.stat.ephemeral_owner) != former[:2]:
            return None
        operations = election.takeover(
            self._id, epoch + 1, version, found.stat.version, self._clock.wall_ms()
        )
        won = await self._elect(Won(epoch + 1, version + 1), operations, generation)
        if won is not None:
            self._set_controller(self._id)
            logger.warning(
                "broker %d took over from controller %d, epoch %d: %s",
                self._id,
                former.broker_id,
                won.epoch,
                former.evidence,
            )
            fields = {"former": former.broker_id, "former_epoch": former.broker_epoch}
            self.note("took over", *won, former.evidence, fields)
        return won

    async def _elect(self, wanted: Won, operations: list[MultiOp], generation: int) -> Won | None:
        check = election.fence(wanted.epoch_version - 1)
        try:
            stats = await self._zookeeper.multi(operations, generation=generation)
        except (OutcomeUnknown, MultiFailed) as error:
            self._ledger.record(WRITE, "", write_line(check, operations, error=error))
            if isinstance(error, MultiFailed) and not _is_lost_race(error, operations):
                raise
            return await self._read_back(wanted)
        except ControllerMoved:
            return await self._read_back(wanted)
        line = write_line(check, operations, stats=stats)
        self._ledger.record(WRITE, f"{wanted.epoch}-0", line)
        written = next(
            stat for op, stat in zip(operations, stats, strict=True) if isinstance(op, Set)
        )
        assert written is not None
        return Won(wanted.epoch, written.version)

    async def _read_back(self, wanted: Won) -> Won | None:
        """Read the nodes after a lost response or a lost race, to find out whether this broker won (S17).

        `wanted`: the epoch that this broker tried to write to `/controller_epoch`, and the version of that
        node after the write. This broker won if the node has this epoch and version, and if `/controller`
        belongs to this broker's current session. A node of an earlier session does not count.
        """
        await self._zookeeper.connected()
        await self._zookeeper.sync(layout.CONTROLLER_EPOCH)
        stat = await self.look()
        found = Won(*await self._read_epoch())
        if stat is not None and self._is_own(stat) and found == wanted:
            return found
        if stat is not None:
            logger.info(
                "broker %d is the controller instead of broker %d", self.controller_id, self._id
            )
            self.note("lost", wanted.epoch)
        return None

    # Resignation.

    async def resign(self, generation: int) -> None:
        """Delete `/controller` if it belongs to this broker's session, so that another broker can be elected (D4, R12).

        The epoch is read first: if `/controller` still belongs to this session afterwards, a successor can only have
        been elected with a later epoch, and the multi fails.
        """
        _, version = await self._read_epoch()
        stat = await self.look()
        if stat is None or not self.is_held(stat):
            return
        logger.info("broker %d resigns: deleting %s", self._id, layout.CONTROLLER)
        operations = election.resignation(stat.version, version)
        try:
            await self._zookeeper.multi(operations, generation=generation)
        except MultiFailed as refused:
            logger.info("%s not deleted: %s", layout.CONTROLLER, refused)

    def note(
        self,
        outcome: str,
        epoch: int,
        epoch_version: int | None = None,
        reason: str = "",
        more: Mapping[str, Any] = NO_FIELDS,
    ) -> None:
        """Write the ledger line of an election or resignation. `more`: further fields of the line."""
        fields = {
            "outcome": outcome,
            "epoch": epoch,
            "zk_version": epoch_version,
            "controller": self.controller_id,
            "reason": reason,
            **more,
        }
        self._ledger.record(ELECTION, "" if outcome == "lost" else f"{epoch}-0", fields)


def _is_lost_race(refused: MultiFailed, operations: Sequence[MultiOp]) -> bool:
    """True if an election failed because `/controller` or `/controller_epoch` has changed since they were read."""
    is_former_gone = isinstance(operations[refused.index], Delete)
    return is_former_gone or isinstance(refused.error, NodeExists | BadVersion)
