"""The requests of administrators in the leader-coordinated mode. Every broker may carry them out.

A reassignment is written below the reassignments, and the partition's leader carries it out. Elections are held by the
brokers that host the replicas: this broker lets them look at their partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import (
    CoordinationError,
    ErrorCode,
    KafkaError,
    MultiFailed,
    NoNode,
    OutcomeUnknown,
)
from minikafka.base.model import BrokerId, PartitionResult, ReplicaAssignment, TopicPartition
from minikafka.base.ports import Call, Check, Gate, MultiOp, ZooKeeper
from minikafka.broker.admin.refusals import refusal
from minikafka.broker.modes.leaders.handover import Handover
from minikafka.broker.modes.leaders.peers import Peers
from minikafka.broker.modes.leaders.requested_elections import RequestedElections
from minikafka.broker.modes.leaders.topic_store import assignment_of
from minikafka.broker.turns.side_by_side import AT_ONCE, all_of
from minikafka.leaders.model import PartitionView
from minikafka.leaders.steps import REASSIGNMENT
from minikafka.rpc import coordination
from minikafka.rpc.coordination import Look
from minikafka.zk.nodes.faults import Faults
from minikafka.zk.nodes.leaders import partitions, reassignments

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
Target: TypeAlias = tuple[BrokerId, ...] | None
LookHere: TypeAlias = Callable[[Look, Sequence[TopicPartition]], Awaitable[None]]
"""Function that reads partitions of this broker again, for a reason; returns when their effects were carried out."""

_ATTEMPTS: Final = 5
UNKNOWN: Final = PartitionResult(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."
)
DELETED: Final = PartitionResult(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted.")


class LeadersAdministration:
    """Administration of the leader-coordinated mode.

    `look_here`: reads partitions of this broker. `on_unclean_default()` is called when the broker's settings begin to
    allow unclean elections.
    """

    def __init__(
        self,
        config: BrokerConfig,
        zookeeper: ZooKeeper,
        peers: Peers,
        gate: Gate,
        faults: Faults,
        look_here: LookHere,
        on_unclean_default: Callable[[], None],
    ) -> None:
        self._config = config
        self._zookeeper = zookeeper
        self._peers = peers
        self._gate = gate
        self._faults = faults
        self._look_here = look_here
        self._on_unclean_default = on_unclean_default
        self._elections = RequestedElections(zookeeper, peers, faults)
        self._handover = Handover(zookeeper, peers, gate, faults)

    @property
    def allows_unclean_elections(self) -> bool:
        """The broker's unclean.leader.election.enable, which topics inherit."""
        return self._config.unclean_leader_election_enable

    @property
    def controller_id(self) -> BrokerId:
        """This broker's id: every broker may carry out requests."""
        return self._config.broker_id

    def check_may_act(self) -> None:
        """Do nothing: every broker may carry out requests."""

    async def wait_while_controller(self, call: Awaitable[Result]) -> Result:
        """Return the result of the call."""
        return await call

    async def answer(self, call: Call) -> dict[str, Any]:
        """Handle the call `LOOK_AGAIN` of another broker. Raises KafkaError."""
        look, tps = coordination.decode_look(call.body)
        await self._look_here(look, tps)
        return {}

    async def controlled_shutdown(
        self, broker_id: BrokerId, broker_epoch: int
    ) -> list[TopicPartition]:
        """Take a broker out of all ISRs and leaderships; return the partitions that it still leads (R23).

        Raises KafkaError, CoordinationError.
        """
        return await self._handover.leave(broker_id, broker_epoch)

    async def elect_leaders(
        self, *, unclean: bool, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, PartitionResult]:
        with _refused("elections"):
            if unclean:
                return await self._elections.unclean(partitions)
            return await self._elections.preferred(partitions)

    def set_broker_defaults(self, config: BrokerConfig) -> None:
        was_unclean = self._config.unclean_leader_election_enable
        self._config = config
        if config.unclean_leader_election_enable and not was_unclean:
            self._on_unclean_default()

    # Reassignments.

    async def reassignments(self) -> dict[TopicPartition, ReplicaAssignment]:
        with _refused("the list of reassignments"):
            found = await partitions.list_requested(self._zookeeper, self._faults)
            views = await self._views(found)
        return {
            tp: assignment_of(view)
            for tp, view in views.items()
            if view.replicas is not None
            and view.reassignment is not None
            and not view.is_being_deleted
        }

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, Target]
    ) -> dict[TopicPartition, PartitionResult]:
        """Write, replace or remove requests (KIP-455). A target of None cancels the reassignment.

        Raises KafkaError.
        """
        with _refused("reassignments"):
            live = frozenset(await self._peers.live())
            alter = partial(self._alter, live)
            results = await all_of((alter(tp, target) for tp, target in targets.items()), AT_ONCE)
        return dict(zip(targets, results, strict=True))

    async def _alter(
        self, live: Collection[BrokerId], tp: TopicPartition, target: Target
    ) -> PartitionResult:
        for _ in range(_ATTEMPTS):
            view = (await self._views([tp]))[tp]
            refusal = _refusal(view, target, live)
            if refusal is not None:
                return refusal
            await self._gate.reached(REASSIGNMENT, "request")
            try:
                if multi := _request(tp, view, target):
                    await self._zookeeper.multi(multi)
                return PartitionResult()
            except (MultiFailed, OutcomeUnknown) as error:
                logger.info("the reassignment of %s is written again: %s", tp, error)
                if isinstance(error, MultiFailed) and isinstance(error.error, NoNode):
                    await reassignments.ensure_parent(self._zookeeper, tp.topic)
                await self._zookeeper.sync(reassignments.DIRECTORY)
        message = "The partition is being changed by other requests; retry."
        return PartitionResult(ErrorCode.REQUEST_TIMED_OUT, message)

    async def _views(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, PartitionView]:
        session_id = self._zookeeper.session_id
        return await partitions.read_views(self._zookeeper, tps, session_id, self._faults)


@contextmanager
def _refused(about: str) -> Iterator[None]:
    """Raise a CoordinationError as the KafkaError that the client gets."""
    try:
        yield
    except CoordinationError as error:
        raise KafkaError(*refusal(error, about)) from error


def _refusal(
    view: PartitionView, target: Target, live: Collection[BrokerId]
) -> PartitionResult | None:
    """Return why a reassignment is impossible, None if it is possible (K12)."""
    if view.replicas is None or view.is_being_deleted:
        return UNKNOWN
    if not view.is_readable:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        return PartitionResult(code, "A node of the partition is not readable.")
    if target is None and view.reassignment is None:
        code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        return PartitionResult(code, "No partition reassignment is in progress.")
    if target is None:
        target = view.replicas
    reason = _fault(view, view.replicas, target, live)
    return PartitionResult(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason) if reason else None


def _fault(
    view: PartitionView,
    assigned: tuple[BrokerId, ...],
    target: tuple[BrokerId, ...],
    live: Collection[BrokerId],
) -> str:
    """Return what is wrong with the new replicas, or "". The ISR must not lose all its members."""
    adding = [replica for replica in target if replica not in assigned]
    if not target:
        return "Empty replica list specified in partition reassignment."
    if len(set(target)) != len(target):
        return f"Duplicate replica ids in partition reassignment replica list: {_ids(target)}"
    if min(target) < 0:
        return f"Invalid broker id in replica list: {_ids(target)}"
    if not all(replica in live for replica in adding):
        return (
            "Replica assignment has brokers that are not alive. "
            f"Replica list: {_ids(adding)}, live broker list: {_ids(sorted(live))}"
        )
    if view.isr is not None and not set(view.isr.ids).intersection((*assigned, *adding)):
        return (
            "Every replica in the ISR would be removed; wait until one of "
            f"{_ids(target)} has joined the ISR, or add a current ISR member to the target"
        )
    return ""


def _request(tp: TopicPartition, view: PartitionView, target: Target) -> list[MultiOp]:
    """Return the multi that writes, replaces or removes the request; nothing if the replicas are as wanted."""
    is_same = target is None or target == view.replicas
    if view.reassignment is None and is_same:
        return []
    multi: list[MultiOp] = []
    if view.isr is not None:
        multi.append(Check(partitions.isr_path(tp), view.isr.version))
    if view.reassignment is None:
        assert target is not None
        check = Check(partitions.replicas_path(tp), view.replicas_version)
        return [*multi, check, reassignments.request(tp, target)]
    if is_same:
        return [*multi, *reassignments.withdrawal(tp, view)]
    assert target is not None
    return [*multi, *reassignments.replacement(tp, view, target)]


def _ids(ids: Sequence[BrokerId]) -> str:
    return ",".join(map(str, ids))
