"""A candidate's attendance at the controller, which finds out that the process of the controller has died.

A candidate keeps one call to the controller open. When the process of the controller dies, its kernel resets this
connection and refuses new ones. If the connection ends, the candidate probes the control listener of the controller.
If it is refused, the candidate waits for its turn and names the controller as the `Former` controller, which
`ControllerElection.take_over` then replaces. Silence is no evidence: then the session of the controller decides.

Invariant: a `Former` has the broker id and the session of `/controller` from before the probe.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeAlias

from minikafka.base.errors import Closed, CoordinationError, KafkaError
from minikafka.base.model import Broker, BrokerId
from minikafka.base.ports import Stat
from minikafka.broker.modes.controller.terms.controllership import Controllership
from minikafka.broker.modes.controller.terms.election import NOBODY, Former
from minikafka.broker.modes.controller.terms.probes import Prober
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.broker.rpc.liveness import Presence
from minikafka.zookeeper.nodes import layout, registrations

logger = logging.getLogger(__name__)

Attender: TypeAlias = Callable[[Broker], Awaitable[None]]
"""Keeps a call to the controller open. Raises OSError or KafkaError when the connection or the controllership ends."""
_NONE: Final = (NOBODY, 0)
_PAUSE_MS: Final = 200
"""Pause before the next call, if the controller has refused the last one or is silent."""
_TURN_MS: Final = 100
"""Time that each further candidate waits for the candidates with smaller ids, so that they do not race."""


class Attendance:
    """The attendance of one broker at the controllers that it does not run itself.

    `on_evidence()` is called when the process of the attended controller has died, and this broker may replace it.
    """

    def __init__(
        self,
        ports: Ports,
        probe: Prober,
        attend: Attender,
        on_evidence: Callable[[], None],
    ) -> None:
        self._id = ports.broker_id
        self._probe = probe
        self._call = attend
        self._zookeeper = ports.zookeeper
        self._clock = ports.clock
        self._tasks = ports.tasks
        self._on_evidence = on_evidence
        self._faults = ports.faults
        self._attended = _NONE
        """Broker id of the attended controller, and the session that owns `/controller`."""
        self._time = Controllership()
        """Ends when another controller is attended."""
        self._connection = Controllership()
        """Ends when a connection to the controller has ended, according to another part of this broker."""
        self._former: Former | None = None

    def attend(self, controller_id: BrokerId, stat: Stat | None) -> None:
        """Keep a call open to the controller that `/controller` names, and to no other. `stat`: the Stat of the node.

        Open no call if this broker is the controller, or if there is no controller.
        """
        is_other = stat is not None and controller_id not in (NOBODY, self._id)
        attended = (controller_id, stat.ephemeral_owner) if stat and is_other else _NONE
        if attended == self._attended:
            return
        self._time.end()
        self._attended, self._time, self._former = attended, Controllership(), None
        if attended != _NONE:
            self._tasks.spawn(self._attend(self._time), "controller-attendance")

    def leave(self) -> None:
        """Keep no call to a controller open."""
        self.attend(NOBODY, None)

    def connection_lost(self) -> None:
        """Probe the attended controller at once: a connection to it has ended."""
        self._connection.end()

    def take_former(self) -> Former | None:
        """Return the controller that has died and forget it; None if there is no evidence of a death."""
        former, self._former = self._former, None
        return former

    async def _attend(self, time: Controllership) -> None:
        with suppress(KafkaError, Closed):  # NOT_CONTROLLER: another controller is attended
            await time.wait_for(self._watch(*self._attended))

    async def _watch(self, controller_id: BrokerId, owner: int) -> None:
        """Keep calls to one controller open, and report each evidence that its process has died."""
        while True:
            try:
                await self._watch_once(controller_id, owner)
            except CoordinationError as error:
                logger.info("no attendance at controller %d: %s", controller_id, error)
            await self._clock.sleep(_PAUSE_MS)

    async def _watch_once(self, controller_id: BrokerId, owner: int) -> None:
        """Keep a call open until the connection ends; then probe the controller, and report a refused connection."""
        controller = await registrations.read_of_session(
            self._zookeeper, controller_id, owner, self._faults
        )
        if controller is None:
            return
        while await self._is_answered(controller):
            pass
        outcome = await self._probe(controller)
        if outcome.presence is not Presence.REFUSED:
            return
        await self._clock.sleep(_TURN_MS * await self._turn(controller_id))
        evidence = f"connection to {outcome.where} refused"
        self._former = Former(controller_id, owner, controller.epoch, evidence)
        self._on_evidence()

    async def _is_answered(self, controller: Broker) -> bool:
        """Keep a call to the controller open. Return True when it answers that it still is the controller."""
        self._connection = Controllership()
        try:
            await self._connection.wait_for(self._call(controller))
        except (OSError, KafkaError):
            return False
        return True

    async def _turn(self, controller_id: BrokerId) -> int:
        """Return the number of registered brokers with a smaller id than this one, without the controller."""
        names, _ = await self._zookeeper.children(layout.BROKER_IDS)
        registered = registrations.ids(names, self._faults)
        return sum(id_ < self._id and id_ != controller_id for id_ in registered)
