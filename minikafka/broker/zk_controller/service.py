"""The controller candidate of one broker: it campaigns in every session and knows who rules.

One loop, level-triggered: look at `/controller` (its watch first); if nobody rules, campaign with one
multi that creates `/controller` and raises `/controller_epoch` (R1); a term won is run to its end; else
wait until something changes. A broker campaigns only while its own registration stands in the same
session, so that it never rules a cluster it does not belong to (R9). Invariants: at most one term
at a time; the end of a session ends the term before the next session is looked at; a machine is dropped with
its term and never repaired.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import (
    BadVersion,
    Closed,
    ControllerMoved,
    CoordinationError,
    ErrorCode,
    KafkaError,
    MultiFailed,
    NodeExists,
    NoNode,
    NotConnected,
    OutcomeUnknown,
    StaleSession,
)
from minikafka.base.model import (
    BrokerId,
    PartitionResult,
    ReplicaAssignment,
    TopicPartition,
)
from minikafka.base.ports import (
    Check,
    Clock,
    Coordination,
    Create,
    Delete,
    Gate,
    Ledger,
    MultiOp,
    SessionState,
    Set,
    Stat,
    Tasks,
    WatchKind,
    WatchSignal,
)
from minikafka.broker.controllership import Controllership
from minikafka.broker.zk_controller.lines import write_line
from minikafka.broker.zk_controller.plan import Planner
from minikafka.broker.zk_controller.reader import Signal
from minikafka.broker.zk_controller.store import ControllerStore
from minikafka.broker.zk_controller.term import Channels, Term
from minikafka.broker.zk_controller.view import view_of
from minikafka.controller.events import (
    ControlledShutdownRequested,
    ElectionRequested,
    ReassignmentsRequested,
    RebalanceDue,
    UncleanElectionEnabled,
)
from minikafka.controller.machine import ControllerMachine, ControllerSettings
from minikafka.ledger.record import ELECTION, WRITE
from minikafka.zk import layout

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

NOBODY: Final = -1
_REGISTRATION_POLL_MS: Final = 50
_AFTER_FAILURE_MS: Final = 500
"""After a term that broke, so that another broker may win the next one."""
_FIRST_REBALANCE_MS: Final = 5_000
_REBALANCE_STEP_MS: Final = 5_000
"""How long at most the task of a term that is over lingers on."""
_PLAN_TIMEOUT_MS: Final = 5_000
_PLAN_POLL_MS: Final = 10
_SESSION_OVER: Final = (SessionState.LEASE_EXPIRED, SessionState.EXPIRED, SessionState.CLOSED)


class ZooKeeperController:
    """Candidate, and controller while it holds a term.

    The broker's registration is made by `broker/zookeeper/registration.py`.
    """

    def __init__(
        self,
        coordination: Coordination,
        channels: Channels,
        clock: Clock,
        tasks: Tasks,
        config: BrokerConfig,
        ledger: Ledger,
        gate: Gate,
    ) -> None:
        self.controller_id: BrokerId = NOBODY
        """Who rules, by the last look at `/controller`; -1 if nobody."""
        self.epoch = -1
        """Epoch of the latest term won."""
        self.epoch_zk_version = -1
        """Version of `/controller_epoch` that the latest term won."""
        self.generation = -1
        """Session of the latest term won."""
        self._coordination = coordination
        self._channels = channels
        self._clock = clock
        self._tasks = tasks
        self._config = config
        self._id = config.broker_id
        self._ledger = ledger
        self._gate = gate
        self._controllership = Controllership()
        """That of the broker `controller_id`."""
        self._term: Term | None = None
        self._changed = asyncio.Event()
        self._is_watching = False
        self._is_closing = False
        self._may_close = asyncio.Event()
        """The campaign has not begun, has ended, or cannot end because ZooKeeper is away."""
        self._may_close.set()

    # What others may ask.

    @property
    def is_active(self) -> bool:
        """Whether this broker rules, in the session that it rests on."""
        return (
            self._term is not None
            and not self._term.over
            and self._term.generation == self._coordination.generation
            and self._coordination.state not in _SESSION_OVER
        )

    def fence(self) -> Check:
        """The check that every write of the controller carries (R2). Raises KafkaError NOT_CONTROLLER."""
        if not self.is_active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        return Check(layout.CONTROLLER_EPOCH, self.epoch_zk_version)

    async def controlled_shutdown(
        self, broker_id: BrokerId, broker_epoch: int
    ) -> list[TopicPartition]:
        """Relieve the broker of its leaderships (R23); the partitions it still leads.

        Raises KafkaError: NOT_CONTROLLER, also when this broker resigns meanwhile, STALE_BROKER_EPOCH
        for an earlier incarnation, BROKER_NOT_AVAILABLE for a broker that is not registered.
        """
        event = partial(ControlledShutdownRequested, broker_id=broker_id, broker_epoch=broker_epoch)
        remaining: list[TopicPartition] = await self._active_term().ask(event)
        return remaining

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, tuple[BrokerId, ...] | None]
    ) -> dict[TopicPartition, PartitionResult]:
        """Start, replace or (None) cancel reassignments (KIP-455, R57). Raises KafkaError NOT_CONTROLLER."""
        event = partial(ReassignmentsRequested, targets=dict(targets))
        results: dict[TopicPartition, PartitionResult] = await self._active_term().ask(event)
        return results

    def reassignments(self) -> dict[TopicPartition, ReplicaAssignment]:
        """Partitions that are being reassigned.

        Raises KafkaError NOT_CONTROLLER, also while the term loads: the picture is empty until then.
        """
        term = self._active_term()
        if term.state == Signal.CONTROLLER.value:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "the controller is loading")
        context = term.machine.context
        return {tp: context.assignments[tp] for tp in context.reassigning}

    async def elect_leaders(
        self, *, unclean: bool, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, PartitionResult]:
        """Preferred or unclean election (KIP-460, R61), of all partitions if None.

        Raises KafkaError NOT_CONTROLLER.
        """
        chosen = None if partitions is None else tuple(partitions)
        event = partial(ElectionRequested, unclean=unclean, partitions=chosen)
        results: dict[TopicPartition, PartitionResult] = await self._active_term().ask(event)
        return results

    def unclean_election_enabled(self, topics: Sequence[str] | None) -> None:
        """The setting was turned on for these topics, None for the cluster: elect at once (R63)."""
        if self._term is not None and self.is_active:
            self._term.put(UncleanElectionEnabled(None if topics is None else tuple(topics)))

    def set_broker_defaults(self, config: BrokerConfig) -> None:
        """See Controller. Unclean elections that are now allowed by default are held at once (R63)."""
        was_unclean = self._config.unclean_leader_election_enable
        self._config = config
        if self._term is not None:
            self._term.set_broker_defaults(config)
        if config.unclean_leader_election_enable and not was_unclean:
            self.unclean_election_enabled(None)

    async def wait_while_controller(self, call: Awaitable[Result]) -> Result:
        """See Controller."""
        return await self._controllership.wait_for(call)

    def _active_term(self) -> Term:
        if self._term is None or not self.is_active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        return self._term

    def summary(self) -> dict[str, Any]:
        """The controller's picture without its partitions (B5, D14); counts are 0 where nobody rules (D11)."""
        summary: dict[str, Any] = {
            "controller_id": self.controller_id,
            "is_active": self.is_active,
            "epoch": self.epoch,
            "queue_size": 0,
            "offline_partition_count": 0,
            "preferred_replica_imbalance_count": 0,
            "topic_count": 0,
            "partition_count": 0,
        }
        if self._term is not None:
            summary.update(self._term.summary())
        return summary

    def describe(self) -> dict[str, Any]:
        """The whole picture, read-only (B5-B7)."""
        partitions = self._term.partitions() if self._term is not None else []
        return {**self.summary(), "partitions": partitions}

    async def plan(self, question: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What would follow from what is asked (`plan.Planner.plan`), as lines of the ledger; read only.

        Raises KafkaError NOT_CONTROLLER, REQUEST_TIMED_OUT while the controller is held up, and as the planner.
        """
        deadline = self._clock.now() + _PLAN_TIMEOUT_MS
        while self._active_term().machine.is_busy:
            if self._clock.now() >= deadline:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the controller waits for ZooKeeper")
            await self._clock.sleep(_PLAN_POLL_MS)
        planner = Planner(
            self._active_term().machine,
            self._coordination,
            self._config,
            self._clock,
            self.generation,
            self.epoch_zk_version,
        )
        return await planner.plan(question)

    def view(self, tp: TopicPartition) -> dict[str, Any] | None:
        """What this broker knows of the partition as the active controller; None when it does not rule."""
        if self._term is None or not self.is_active:
            return None
        return view_of(self._term, tp)

    def backlog(self) -> dict[str, int]:
        """Requests that wait for each broker's answer (C39); nothing unless this broker rules."""
        if not self.is_active:
            return {}
        return {str(id_): count for id_, count in self._channels.backlog().items()}

    # Life.

    async def start(self) -> None:
        """Begin to campaign; returns at once (D2)."""
        self._may_close.clear()
        self._tasks.spawn(self._follow_session(), "controller-session")
        self._tasks.spawn(self._run(), "controller")

    async def resign(self) -> None:
        """See Controller. Another broker can be elected at once."""
        self._is_closing = True
        if self._term is not None:
            self._term.end()
        self._changed.set()
        if self._coordination.state is SessionState.CONNECTED:
            await self._may_close.wait()

    async def _follow_session(self) -> None:
        """The end of a session, or of the lease on it, ends the term before anything else happens (R9, S19)."""
        async for event in self._coordination.events():
            if event.state in _SESSION_OVER and self._term is not None:
                logger.warning("resigning as controller: the session is %s", event.state.value)
                self._term.end()
            self._changed.set()
            if self._is_closing and event.state is not SessionState.CONNECTED:
                self._may_close.set()

    async def _run(self) -> None:
        try:
            await self._campaign_and_rule()
        finally:
            self._may_close.set()

    async def _campaign_and_rule(self) -> None:
        while not self._is_closing:
            try:
                await self._step(await self._coordination.connected())
            except Closed:
                return
            except (NotConnected, OutcomeUnknown, StaleSession) as error:
                logger.info("controller candidate of broker %d starts over: %s", self._id, error)
            except (CoordinationError, ValueError) as error:
                logger.error("controller candidate of broker %d: %r", self._id, error)
                await self._clock.sleep(_AFTER_FAILURE_MS)

    async def _step(self, generation: int) -> None:
        """Look once, act on what is there, and wait for a change if there is nothing to do."""
        if not await self._is_registered():
            await self._clock.sleep(_REGISTRATION_POLL_MS)
            return
        self._changed.clear()
        stat = await self._look()
        if self._is_closing:
            return
        if stat is None:
            await self._campaign(generation)
        elif (
            self.controller_id == self._id and stat.ephemeral_owner == self._coordination.session_id
        ):
            await self._abdicate(generation, stat)
        else:
            await self._changed.wait()

    async def _is_registered(self) -> bool:
        stat = await self._coordination.exists(layout.broker_path(self._id))
        return stat is not None and stat.ephemeral_owner == self._coordination.session_id

    async def _look(self) -> Stat | None:
        """Read `/controller`, its watch set before, and remember whom it names; its Stat."""
        if not self._is_watching:
            self._is_watching = True
            self._coordination.watch(WatchKind.EXISTS, layout.CONTROLLER).on_signal(
                self._controller_changed
            )
        stat = await self._coordination.exists(layout.CONTROLLER, watch=True)
        if stat is None:
            self._name(NOBODY)
            return None
        try:
            data, stat = await self._coordination.get(layout.CONTROLLER)
            self._name(layout.decode_controller(data))
        except NoNode:
            self._name(NOBODY)
            return None
        except ValueError as error:
            logger.error("%s is not readable: %s", layout.CONTROLLER, error)
            self._name(NOBODY)
        return stat

    def _name(self, controller_id: BrokerId) -> None:
        if controller_id != self.controller_id:
            self.controller_id = controller_id
            self._controllership.end()
            self._controllership = Controllership()

    def _controller_changed(self, _: WatchSignal) -> None:
        self._is_watching = False
        self._changed.set()
        if self._term is not None:
            self._term.put(Signal.CONTROLLER)

    # Election.

    async def _campaign(self, generation: int) -> None:
        """Stand for election once; a term won is run to its end."""
        epoch, version = await self._read_epoch()
        won = await self._elect(epoch + 1, version, generation)
        if won is None:
            return
        self.epoch, self.epoch_zk_version, self.generation = epoch + 1, won, generation
        self._name(self._id)
        logger.info(
            "broker %d successfully elected as the controller, epoch %d", self._id, self.epoch
        )
        self._note_election("won")
        await self._rule()

    async def _read_epoch(self) -> tuple[int, int]:
        """The epoch and its version; the node is made if this is the first election (A8).

        Raises ValueError when somebody wrote something else there.
        """
        while True:
            try:
                data, stat = await self._coordination.get(layout.CONTROLLER_EPOCH)
                return int(data), stat.version
            except NoNode:
                try:
                    await self._coordination.create(layout.CONTROLLER_EPOCH, b"0")
                except (NodeExists, OutcomeUnknown):
                    continue

    async def _elect(self, epoch: int, version: int, generation: int) -> int | None:
        """The version of `/controller_epoch` if this broker won, else None (R1)."""
        data = layout.encode_controller(self._id, self._clock.wall_ms())
        check = Check(layout.CONTROLLER_EPOCH, version)
        operations: list[MultiOp] = [
            Create(layout.CONTROLLER, data, ephemeral=True),
            check,
            Set(layout.CONTROLLER_EPOCH, str(epoch).encode(), version),
        ]
        try:
            stats = await self._coordination.multi(
                operations,
                generation=generation,
            )
        except (OutcomeUnknown, MultiFailed) as error:
            self._ledger.record(WRITE, "", write_line(check, operations, error=error))
            if isinstance(error, MultiFailed) and not isinstance(
                error.error, NodeExists | BadVersion
            ):
                raise
            return await self._read_back(epoch, version, generation)
        except ControllerMoved:
            return await self._read_back(epoch, version, generation)
        self._ledger.record(WRITE, f"{epoch}-0", write_line(check, operations, stats=stats))
        written = stats[-1]
        assert written is not None
        return written.version

    async def _read_back(self, epoch: int, version: int, generation: int) -> int | None:
        """After a lost answer or a lost race: we won if the node is our session's and the epoch ours (S17)."""
        if await self._coordination.connected() != generation:
            raise StaleSession("the session ended during the election")
        await self._coordination.sync(layout.CONTROLLER_EPOCH)
        stat = await self._look()
        data, epoch_stat = await self._coordination.get(layout.CONTROLLER_EPOCH)
        ours = stat is not None and stat.ephemeral_owner == self._coordination.session_id
        if ours and int(data) == epoch and epoch_stat.version == version + 1:
            return epoch_stat.version
        if stat is not None:
            logger.info(
                "broker %d was elected as controller instead of broker %d",
                self.controller_id,
                self._id,
            )
            self._note_election("lost", epoch=epoch)
        return None

    def _note_election(self, outcome: str, reason: str = "", epoch: int | None = None) -> None:
        """One line of the ledger; of this broker's latest term unless another epoch is named."""
        epoch = self.epoch if epoch is None else epoch
        fields = {
            "outcome": outcome,
            "epoch": epoch,
            "zk_version": self.epoch_zk_version if epoch == self.epoch else None,
            "controller": self.controller_id,
            "reason": reason,
        }
        self._ledger.record(ELECTION, "" if outcome == "lost" else f"{epoch}-0", fields)

    async def _abdicate(self, generation: int, stat: Stat) -> None:
        """`/controller` is of this session but no term rests on it: make way for an election (D4, R12)."""
        logger.info("deleting %s, which broker %d no longer fills", layout.CONTROLLER, self._id)
        _, version = await self._read_epoch()
        resignation: list[MultiOp] = [
            Check(layout.CONTROLLER_EPOCH, version),
            Delete(layout.CONTROLLER, stat.version),
        ]
        try:
            await self._coordination.multi(resignation, generation=generation)
        except MultiFailed as refused:
            logger.info("%s not deleted: %s", layout.CONTROLLER, refused)

    # Rule and resignation.

    async def _rule(self) -> None:
        """Run one term to its end; whatever ends it, nothing of it is left but `/controller` (D10)."""
        self._term = term = self._new_term()
        term.put(Signal.CONTROLLER)  # our own creation of the node has used up the watch on it
        if self._is_closing:  # while the election was on its way
            term.end()
        broke = False
        why = "asked to"
        self._tasks.spawn(self._rebalance(term), "leader-rebalance")
        try:
            await term.run()
        except ControllerMoved as moved:
            why = f"the controller moved: {moved}"
            logger.info("resigning, %s", why)
        except StaleSession as stale:
            why = str(stale)
            logger.info("resigning: %s", stale)
        except Exception as error:
            logger.exception("the controller of epoch %d broke, resigning (R12)", self.epoch)
            why = f"{type(error).__name__} {error}"
            broke = True
        finally:
            term.end()
            self._term = None
        self._note_election("resigned", why)
        await term.reader.disarm()
        await self._leave_office()
        if broke:
            await self._clock.sleep(_AFTER_FAILURE_MS)

    def _new_term(self) -> Term:
        """The runner, the store and the machine of the epoch that was won."""
        store = ControllerStore(
            self._coordination,
            self._config,
            self.generation,
            self.epoch_zk_version,
            self._ledger,
        )
        settings = ControllerSettings(
            self._config.delete_topic_enable, self._config.leader_imbalance_per_broker_percentage
        )
        return Term(
            self._coordination,
            store,
            self._channels,
            self._clock,
            ControllerMachine(self._id, self.epoch, settings),
            self._is_ours,
            self._ledger,
            self._gate,
        )

    async def _rebalance(self, term: Term) -> None:
        """Look at the balance of leaders 5 s after the election, and then at every interval (D7, X20)."""
        if not self._config.auto_leader_rebalance_enable:
            return
        interval_ms = self._config.leader_imbalance_check_interval_seconds * 1000
        due = self._clock.now() + _FIRST_REBALANCE_MS
        while not term.over:
            await self._clock.sleep(min(due - self._clock.now(), _REBALANCE_STEP_MS))
            if self._clock.now() >= due and not term.over:
                term.put(RebalanceDue())
                due += interval_ms

    async def _leave_office(self) -> None:
        """Give `/controller` up if it is still ours, for someone else to take."""
        if self._coordination.generation != self.generation:
            return
        stat = await self._look()
        if stat is not None and await self._is_ours(stat):
            await self._abdicate(self.generation, stat)

    async def _is_ours(self, stat: Stat | None = None) -> bool:
        """Whether `/controller` names this broker in this session (D8, D9)."""
        stat = stat or await self._look()
        return (
            stat is not None
            and stat.ephemeral_owner == self._coordination.session_id
            and self.controller_id == self._id
        )
