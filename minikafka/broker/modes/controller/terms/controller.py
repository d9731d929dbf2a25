"""The controller as one broker sees it: takes part in elections and runs the terms that the broker wins.

A loop reads `/controller`. If the node is absent, the broker campaigns. If the broker is elected, it runs a
term to its end. If the node exists, the broker waits for a change, or for evidence that the process of the controller
has died (`takeover.py`): then it replaces the controller. A broker campaigns only in a session in which
it has registered itself, so that the controller always belongs to the cluster (R9). Invariants: there is
at most one term at a time. When a session ends, its term ends before the next session is used. A
ControllerMachine is dropped at the end of its term and never reused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import (
    Closed,
    ControllerMoved,
    CoordinationError,
    ErrorCode,
    KafkaError,
    NotConnected,
    OutcomeUnknown,
    StaleSession,
)
from minikafka.base.model import BrokerId, PartitionResult, ReplicaAssignment, TopicPartition
from minikafka.base.ports import (
    Check,
    SessionState,
    Stat,
)
from minikafka.base.protocol_versions import UNVERSIONED
from minikafka.broker.admin.refusals import refusal
from minikafka.broker.controlled_shutdown import HANDOVER_MS
from minikafka.broker.modes.controller.terms.election import (
    NOBODY,
    ControllerElection,
    EpochNotReadable,
    Won,
)
from minikafka.broker.modes.controller.terms.plan import Planner
from minikafka.broker.modes.controller.terms.probes import BrokerProbes, Prober
from minikafka.broker.modes.controller.terms.reader import Signal
from minikafka.broker.modes.controller.terms.store import ControllerStore
from minikafka.broker.modes.controller.terms.takeover import Attendance, Attender
from minikafka.broker.modes.controller.terms.term import RequestChannels, Term
from minikafka.broker.modes.controller.terms.term_session import TermSession
from minikafka.broker.modes.controller.terms.view import summary_of, view_of
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.broker.rpc.liveness import ATTEND_MS
from minikafka.deciders.controller.commands import ShutdownResponse
from minikafka.deciders.controller.events import (
    ControlledShutdownRequested,
    ElectionRequested,
    ReassignmentsRequested,
    RebalanceDue,
    UncleanElectionEnabled,
)
from minikafka.deciders.controller.machine import ControllerMachine, ControllerSettings
from minikafka.zookeeper.nodes import election

logger = logging.getLogger(__name__)

_REGISTRATION_POLL_MS: Final = 50
_AFTER_FAILURE_MS: Final = 500
"""Pause (ms) after a failure, so that another broker can win the next election."""
_FIRST_REBALANCE_MS: Final = 5_000
_PLAN_TIMEOUT_MS: Final = 5_000
_PLAN_POLL_MS: Final = 10
ANSWERS_MS: Final = 1_000
"""Maximum time (ms) for which a broker that does not answer the controller delays the shutdown of another."""
_ANSWERS_POLL_MS: Final = 5
_SESSION_OVER: Final = (SessionState.LEASE_EXPIRED, SessionState.EXPIRED, SessionState.CLOSED)
_NEVER_WON: Final = Won(-1, -1)

Result = TypeVar("Result")


class ZooKeeperController:
    """The capabilities Administration and Diagnostics of the controller mode, for one broker."""

    def __init__(
        self,
        ports: Ports,
        channels: RequestChannels,
        probe: Prober,
        attend: Attender,
    ) -> None:
        self.generation = -1
        """Number of the session in which this broker last won an election."""
        self._ports = ports
        self._zookeeper = ports.zookeeper
        self._channels = channels
        self._clock = ports.clock
        self._tasks = ports.tasks
        self._config = ports.config
        """The current settings: unlike those of `ports`, they change."""
        self._id = ports.broker_id
        self._probe = probe
        self._changed = asyncio.Event()
        self._election = ControllerElection(ports, self._controller_changed)
        self._attendance = Attendance(ports, probe, attend, self._changed.set)
        self._won = _NEVER_WON
        self._term: Term | None = None
        self._probes: BrokerProbes | None = None
        """The probes of the term; None without a term, or if fast failover is switched off."""
        self._is_closing = False
        self._may_close = asyncio.Event()
        """Set when `resign` may return: the election loop has ended, or ZooKeeper is unreachable."""
        self._may_close.set()

    # The controller's id.

    @property
    def controller_id(self) -> BrokerId:
        """Id of the active controller at the last read of `/controller`, -1 if there was none."""
        return self._election.controller_id

    @property
    def is_active(self) -> bool:
        """True if this broker is the active controller, and its session and lease have not ended."""
        return (
            self._term is not None
            and not self._term.over
            and self._term.generation == self._zookeeper.generation
            and self._zookeeper.state not in _SESSION_OVER
        )

    @property
    def epoch(self) -> int:
        return self._won.epoch

    def check_may_act(self) -> None:
        """Raise KafkaError NOT_CONTROLLER if this broker is not the active controller."""
        self._active_term()

    def fence(self) -> Check:
        """Return the check of the controller epoch, which every write of the controller contains (R2).

        Raises KafkaError NOT_CONTROLLER.
        """
        self._active_term()
        return election.fence(self._won.epoch_version)

    async def wait_while_controller(self, call: Awaitable[Result]) -> Result:
        """Return the result of `call`, or cancel `call` when the controller changes.

        Raises KafkaError NOT_CONTROLLER if `call` is cancelled.
        """
        return await self._election.controllership.wait_for(call)

    # Requests to the active controller.

    async def controlled_shutdown(
        self, broker_id: BrokerId, broker_epoch: int
    ) -> list[TopicPartition]:
        term = self._active_term()
        request = ControlledShutdownRequested(term.new_caller(), broker_id, broker_epoch)
        response: ShutdownResponse = await term.ask(request)
        if response.error is not ErrorCode.NONE:
            raise KafkaError(response.error)
        if not response.remaining:
            with suppress(KafkaError):  # the leaderships have moved, also if the term ends
                await term.controllership.wait_for(self._hand_over(term, broker_id))
        return list(response.remaining)

    async def _hand_over(self, term: Term, broker_id: BrokerId) -> None:
        """Wait until no broker has an unanswered request, at most `ANSWERS_MS`, so that all know the new leaders.

        Otherwise clients of the broker, which is about to close its connections, could get its former leaderships from
        other brokers. A broker of release 0.1.0 closes them at once: its clients get HANDOVER_MS to ask it.
        """
        deadline = self._clock.now() + ANSWERS_MS
        while any(self._channels.backlog().values()) and self._clock.now() < deadline:
            await self._clock.sleep(_ANSWERS_POLL_MS)
        leaving = term.machine.context.brokers.get(broker_id)
        if leaving is not None and leaving.versions == (UNVERSIONED,):
            await self._clock.sleep(HANDOVER_MS)

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, tuple[BrokerId, ...] | None]
    ) -> dict[TopicPartition, PartitionResult]:
        term = self._active_term()
        return dict(await term.ask(ReassignmentsRequested(term.new_caller(), dict(targets))))

    async def reassignments(self) -> dict[TopicPartition, ReplicaAssignment]:
        """Return the partitions that are being reassigned, with their assignments.

        Raises KafkaError NOT_CONTROLLER if this broker is not the controller, or is still loading the cluster.
        """
        term = self._active_term()
        if term.state == Signal.CONTROLLER.value:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "the controller is loading")
        context = term.machine.context
        return {tp: context.assignments[tp] for tp in context.reassigning}

    async def elect_leaders(
        self, *, unclean: bool, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, PartitionResult]:
        term = self._active_term()
        chosen = None if partitions is None else tuple(partitions)
        return dict(await term.ask(ElectionRequested(term.new_caller(), unclean, chosen)))

    def connection_lost(self, broker_id: BrokerId, broker_epoch: int, reporter: BrokerId) -> None:
        """Find out whether a broker has died, because a connection of `reporter` to it has ended.

        Raises KafkaError NOT_CONTROLLER.
        """
        is_leaving = broker_id in self._active_term().machine.context.shutting_down
        if self._probes is not None and not is_leaving:
            self._probes.report(broker_id, broker_epoch, reporter)

    async def attend(self) -> None:
        """Return after `ATTEND_MS`. Raises KafkaError NOT_CONTROLLER when this broker is not the controller."""
        term = self._active_term()
        await term.controllership.wait_for(self._clock.sleep(ATTEND_MS))

    def unclean_election_enabled(self, topics: Sequence[str] | None) -> None:
        """Elect leaders for topics that now allow unclean elections (R63); None means all topics."""
        if self._term is not None and self.is_active:
            self._term.put(UncleanElectionEnabled(None if topics is None else tuple(topics)))

    def controller_lost(self) -> None:
        """Probe the controller at once: a connection to it has ended."""
        self._attendance.connection_lost()

    def set_broker_defaults(self, config: BrokerConfig) -> None:
        """Replace the broker settings that topics inherit.

        If the new settings allow unclean elections and the old settings did not, the active controller elects
        leaders for all topics that now allow unclean elections (R63).
        """
        was_unclean = self._config.unclean_leader_election_enable
        self._config = config
        if self._term is not None:
            self._term.set_broker_defaults(config)
        if config.unclean_leader_election_enable and not was_unclean:
            self.unclean_election_enabled(None)

    def _active_term(self) -> Term:
        if self._term is None or not self.is_active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
        return self._term

    # Status.

    def summary(self) -> dict[str, Any]:
        """Return the state and the counts of the controller; on any other broker the counts are 0."""
        summary: dict[str, Any] = {
            "controller_id": self.controller_id,
            "is_active": self.is_active,
            "epoch": self.epoch,
            "queue_size": 0,
            "offline_partition_count": 0,
            "preferred_replica_imbalance_count": 0,
            "topic_count": 0,
            "partition_count": 0,
            "replicas_to_delete": 0,
            "replicas_ineligible_for_deletion": 0,
        }
        if self._term is not None:
            summary.update(summary_of(self._term))
        return summary

    def view(self, tp: TopicPartition) -> dict[str, Any] | None:
        """Return the controller's state of a partition for diagnosis; None if this broker is not the controller."""
        if self._term is None or not self.is_active:
            return None
        return view_of(self._term, tp)

    def backlog(self) -> dict[str, int]:
        """Return broker id -> number of requests that the broker has not answered to this controller.

        Empty if this broker is not the controller.
        """
        if not self.is_active:
            return {}
        return {str(id_): count for id_, count in self._channels.backlog().items()}

    async def plan(self, question: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the actions that the controller would take, as ledger lines. `question`: see `Planner.plan`."""
        deadline = self._clock.now() + _PLAN_TIMEOUT_MS
        while self._active_term().machine.is_busy:
            if self._clock.now() >= deadline:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the controller waits for ZooKeeper")
            await self._clock.sleep(_PLAN_POLL_MS)
        planner = Planner(
            self._active_term().machine,
            self._zookeeper,
            self._config,
            self._clock,
            self.generation,
            self._won.epoch_version,
        )
        try:
            return await planner.plan(question)
        except CoordinationError as error:
            raise KafkaError(*refusal(error, "plan")) from error

    # Start and resignation.

    async def start(self) -> None:
        """Start taking part in elections; return at once (D2)."""
        self._may_close.clear()
        self._tasks.spawn(self._follow_session(), "controller-session")
        self._tasks.spawn(self._run(), "controller")

    async def resign(self) -> None:
        """Resign, so that another broker can be elected at once, and take part in no further election."""
        self._is_closing = True
        self._attendance.leave()
        if self._term is not None:
            self._term.end()
        self._changed.set()
        if self._zookeeper.state is SessionState.CONNECTED:
            await self._may_close.wait()

    async def _follow_session(self) -> None:
        """End the term as soon as the session has ended or its lease has expired (R9, S19)."""
        async for event in self._zookeeper.events():
            if event.state in _SESSION_OVER and self._term is not None:
                logger.warning("resigning as controller: the session is %s", event.state.value)
                self._term.end()
            self._changed.set()
            # Without a connection the node cannot be deleted: a shutdown must not wait for the session to end.
            if self._is_closing and event.state is not SessionState.CONNECTED:
                self._may_close.set()

    def _controller_changed(self) -> None:
        self._changed.set()
        if self._term is not None:
            self._term.put(Signal.CONTROLLER)

    async def _run(self) -> None:
        try:
            await self._campaign_until_closed()
        finally:
            self._may_close.set()

    async def _campaign_until_closed(self) -> None:
        while not self._is_closing:
            try:
                await self._step(await self._zookeeper.connected())
            except Closed:
                return
            except (NotConnected, OutcomeUnknown, StaleSession) as error:
                logger.info("controller election of broker %d starts over: %s", self._id, error)
            except EpochNotReadable:
                await self._clock.sleep(_AFTER_FAILURE_MS)
            except (CoordinationError, ValueError) as error:
                logger.error("controller election of broker %d: %r", self._id, error)
                await self._clock.sleep(_AFTER_FAILURE_MS)

    async def _step(self, generation: int) -> None:
        """Read `/controller` and act on it: campaign, run a term, resign, or wait for a change."""
        if not await self._election.is_registered():
            await self._clock.sleep(_REGISTRATION_POLL_MS)
            return
        # Cleared before the read: a change that comes later sets it again.
        self._changed.clear()
        former = self._election.controller_id
        stat = await self._election.look()
        if self._is_closing:
            return
        if stat is None:
            await self._campaign(generation, former)
        elif self._election.is_held(stat):  # this session created the node, but no term is running
            await self._election.resign(generation)
        else:
            await self._wait_or_take_over(generation, stat)

    async def _campaign(self, generation: int, former: BrokerId) -> None:
        """Try to become the controller, and run the term after a success. `former`: the last known controller."""
        self._attendance.leave()
        won = await self._election.campaign(generation)
        if won is not None:
            self._tasks.spawn(self._report_former(former), "former-controller")
            await self._run_term(won, generation, {})

    async def _wait_or_take_over(self, generation: int, stat: Stat) -> None:
        """Wait until `/controller` changes. If the process of the controller has died, replace it and run the term."""
        if self._config.minikafka_fast_failover_enable:
            self._attendance.attend(self._election.controller_id, stat)
        former = self._attendance.take_former()
        if former is None:
            await self._changed.wait()
            return
        won = await self._election.take_over(generation, former)
        if won is not None:
            self._attendance.leave()
            await self._run_term(won, generation, {former.broker_id: former.broker_epoch})

    async def _report_former(self, former: BrokerId) -> None:
        """Warn if `former`, the last controller that this broker knew of, has died.

        `former` has died if it is not registered just after the election. A controller that shuts down is
        still registered, because it deletes `/controller` first and its registration last.
        """
        if former in (NOBODY, self._id):
            return
        with suppress(CoordinationError, Closed):
            if await self._election.is_unregistered(former):
                logger.warning("broker %d died: session expired; it was the controller", former)

    # One term.

    async def _run_term(self, won: Won, generation: int, suspects: Mapping[BrokerId, int]) -> None:
        """Run a term until it ends for any reason, then remove its watches and delete `/controller` (D10).

        `suspects`: the brokers whose process has died before the term, each with its broker epoch.
        """
        self._won, self.generation = won, generation
        self._term = term = self._new_term()
        if self._config.minikafka_fast_failover_enable:
            self._probes = self._new_probes(term, suspects)
        # The creation of `/controller` fired the watch on this node. The signal makes the term set the watch again.
        term.put(Signal.CONTROLLER)
        if self._is_closing:  # `resign` was called during the election
            term.end()
        broke = False
        reason = "asked to"
        self._tasks.spawn(self._rebalance(term), "leader-rebalance")
        try:
            await term.run()
        except ControllerMoved as moved:
            reason = f"the controller moved: {moved}"
            logger.info("resigning, %s", reason)
        except StaleSession as stale:
            reason = str(stale)
            logger.info("resigning: %s", stale)
        except Exception as error:
            logger.exception("the controller of epoch %d failed, resigning", self.epoch)
            reason = f"{type(error).__name__} {error}"
            broke = True
        finally:
            term.end()
            term.machine.shutdown()
            self._term = self._probes = None
        self._election.note("resigned", *self._won, reason)
        # As in Kafka, the watches go before the node (D10): the node may let this broker win again at once.
        await term.reader.disarm()
        await self._election.resign(self.generation)
        if broke:
            await self._clock.sleep(_AFTER_FAILURE_MS)

    def _new_term(self) -> Term:
        """Return a new Term, with a new ControllerMachine, for the election that this broker won."""
        session = TermSession(
            self._zookeeper,
            self.generation,
            self._won.epoch_version,
            self._ports.ledger,
            self._ports.faults,
        )
        settings = ControllerSettings(
            self._config.delete_topic_enable, self._config.leader_imbalance_per_broker_percentage
        )
        return Term(
            self._zookeeper,
            ControllerStore(session, self._config),
            self._channels,
            self._clock,
            ControllerMachine(self._id, self.epoch, settings),
            self._still_holds_node,
            self._ports.ledger,
            self._ports.gate,
        )

    def _new_probes(self, term: Term, suspects: Mapping[BrokerId, int]) -> BrokerProbes:
        """Return the probes of brokers that may have died, and connect them to the term's reads of the brokers."""
        probes = BrokerProbes(self._ports, self._probe, term.controllership, term.put, suspects)
        term.reader.probes = probes
        return probes

    async def _rebalance(self, term: Term) -> None:
        """Queue a check of the leader imbalance 5 s after the election, then at the configured interval (D7, X20)."""
        if not self._config.auto_leader_rebalance_enable:
            return
        interval_ms = self._config.leader_imbalance_check_interval_seconds * 1000
        pause_ms = _FIRST_REBALANCE_MS
        with suppress(KafkaError):  # NOT_CONTROLLER: the term has ended
            while True:
                await term.controllership.wait_for(self._clock.sleep(pause_ms))
                term.put(RebalanceDue())
                pause_ms = interval_ms

    async def _still_holds_node(self) -> bool:
        """Read `/controller` again; return True if it still names this broker in this session (D8, D9)."""
        return self._election.is_held(await self._election.look())
