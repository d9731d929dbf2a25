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
from minikafka.base.model import (
    Broker,
    BrokerId,
    PartitionResult,
    ReplicaAssignment,
    TopicPartition,
)
from minikafka.base.ports import Call, Check, MultiOp
from minikafka.broker.admin.refusals import refusal
from minikafka.broker.modes.leaders.handover import Handover
from minikafka.broker.modes.leaders.host import LeadersHost
from minikafka.broker.modes.leaders.peers import Peers
from minikafka.broker.modes.leaders.topic_store import assignment_of
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.broker.rpc import coordination
from minikafka.broker.rpc.coordination import PARTITIONS_MAX, LookReason
from minikafka.broker.side_by_side import AT_ONCE, all_of
from minikafka.deciders.leaders.model import PartitionView
from minikafka.deciders.leaders.steps import REASSIGNMENT
from minikafka.zookeeper.nodes.leaders import partitions, reassignments

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
Target: TypeAlias = tuple[BrokerId, ...] | None

_ATTEMPTS: Final = 5
UNKNOWN: Final = PartitionResult(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."
)
DELETED: Final = PartitionResult(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted.")


class LeadersAdministration:
    """Administration of the leader-coordinated mode."""

    def __init__(self, ports: Ports, peers: Peers, host: LeadersHost) -> None:
        self._broker_id = ports.broker_id
        self._zookeeper = ports.zookeeper
        self._gate = ports.gate
        self._faults = ports.faults
        self._peers = peers
        self._host = host
        self._elections = RequestedElections(ports, peers)
        self._handover = Handover(ports, peers)

    @property
    def controller_id(self) -> BrokerId:
        """This broker's id: every broker may carry out requests."""
        return self._broker_id

    def check_may_act(self) -> None:
        """Do nothing: every broker may carry out requests."""

    async def wait_while_controller(self, call: Awaitable[Result]) -> Result:
        """Return the result of the call."""
        return await call

    async def answer(self, call: Call) -> dict[str, Any]:
        """Handle the call `LOOK_AGAIN` of another broker. Raises KafkaError."""
        look, tps = coordination.decode_look(call.body)
        await self._host.look_again(look, tps)
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
        self._host.set_unclean_default(config.unclean_leader_election_enable)

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
            refusal = _not_reassignable(view, target, live)
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


def _not_reassignable(
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


_Results: TypeAlias = dict[TopicPartition, PartitionResult]
_Choice: TypeAlias = BrokerId | PartitionResult
"""The broker that must look at a partition, or the result without a look."""
_ELECTED: Final = PartitionResult()
_NOT_NEEDED: Final = PartitionResult(
    ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
)
_CANNOT_GIVE_UP: Final = (
    "has not given up its leadership, because it waits for the other in-sync replicas, or because the partition has"
    " just changed; try again"
)


class RequestedElections:
    """Elections that an administrator requests (KIP-460, R61).

    Nobody elects a leader for others: a leader is asked to give up its leadership for the preferred replica, or a
    replica outside the ISR is allowed to lead. Nothing is deleted without the leader.
    """

    def __init__(self, ports: Ports, peers: Peers) -> None:
        self._zookeeper = ports.zookeeper
        self._faults = ports.faults
        self._peers = peers

    async def preferred(self, chosen: Sequence[TopicPartition] | None) -> _Results:
        """Let the leaders give up for the preferred replicas. Raises CoordinationError."""
        return await self._hold(chosen, LookReason.PREFERRED, _for_preferred)

    async def unclean(self, chosen: Sequence[TopicPartition] | None) -> _Results:
        """Let a live replica lead each partition without a leader. Raises CoordinationError."""
        return await self._hold(chosen, LookReason.UNCLEAN, _for_unclean)

    async def _hold(
        self,
        chosen: Sequence[TopicPartition] | None,
        look: LookReason,
        choose: Callable[[TopicPartition, PartitionView, Mapping[BrokerId, Broker]], _Choice],
    ) -> _Results:
        if chosen is None:
            chosen = await partitions.list_partitions(self._zookeeper, self._faults)
        session_id = self._zookeeper.session_id
        views = await partitions.read_views(self._zookeeper, chosen, session_id, self._faults)
        live = await self._peers.live()
        results: _Results = {}
        asked: dict[BrokerId, list[TopicPartition]] = {}
        for tp in chosen:
            choice = _not_electable(views[tp]) or choose(tp, views[tp], live)
            if isinstance(choice, PartitionResult):
                results[tp] = choice
            else:
                asked.setdefault(choice, []).append(tp)
        for broker_id, tps in asked.items():
            results |= await self._ask(live[broker_id], look, tps)
        if look is LookReason.PREFERRED:
            results |= await self._kept(asked, results)
        return results

    async def _kept(
        self, asked: Mapping[BrokerId, Sequence[TopicPartition]], results: _Results
    ) -> _Results:
        """Return a failure for each leadership that its leader was asked to give up, and has kept."""
        leaders = {tp: leader for leader, tps in asked.items() for tp in tps}
        chosen = [tp for tp in leaders if results[tp] == _ELECTED]
        session_id = self._zookeeper.session_id
        views = await partitions.read_views(self._zookeeper, chosen, session_id, self._faults)
        return {
            tp: _unavailable(LookReason.PREFERRED, f"the leader {leaders[tp]} {_CANNOT_GIVE_UP}")
            for tp in chosen
            if (leader := views[tp].leader) is not None and leader.broker_id == leaders[tp]
        }

    async def _ask(
        self, broker: Broker, look: LookReason, tps: Sequence[TopicPartition]
    ) -> _Results:
        results: _Results = {}
        for first in range(0, len(tps), PARTITIONS_MAX):
            part = tps[first : first + PARTITIONS_MAX]
            answered = await self._peers.look_again(broker, look, part)
            failed = _unavailable(look, f"broker {broker.id} does not answer")
            results |= dict.fromkeys(part, _ELECTED if answered else failed)
        return results


def _not_electable(view: PartitionView) -> PartitionResult | None:
    """Return why no election is held, None if one may be held."""
    if view.is_being_deleted:
        return DELETED
    return UNKNOWN if view.replicas is None else None


def _for_preferred(
    tp: TopicPartition, view: PartitionView, live: Mapping[BrokerId, Broker]
) -> _Choice:
    assert view.replicas, tp
    preferred, leader = view.replicas[0], view.leader
    if leader is not None and leader.broker_id == preferred:
        return _NOT_NEEDED
    reason = ""
    if preferred not in live:
        reason = f"the preferred replica {preferred} is not alive"
    elif view.isr is not None and preferred not in view.isr.ids:
        reason = f"the preferred replica {preferred} is not in sync"
    elif view.reassignment is not None:
        reason = "the partition is being reassigned"
    elif leader is not None and leader.broker_id not in live:
        reason = f"the leader {leader.broker_id} is not alive, and its session has not ended yet"
    if reason:
        return _unavailable(LookReason.PREFERRED, reason)
    return _ELECTED if leader is None else leader.broker_id  # without a leader, it elects itself


def _for_unclean(
    tp: TopicPartition, view: PartitionView, live: Mapping[BrokerId, Broker]
) -> _Choice:
    assert view.replicas, tp
    if view.leader is not None:
        return _NOT_NEEDED
    isr = () if view.isr is None else view.isr.ids
    if any(member in live for member in isr):
        return _ELECTED  # this member elects itself
    able = [replica for replica in view.replicas if replica in live]
    return able[0] if able else _unavailable(LookReason.UNCLEAN, "no replica is alive")


def _unavailable(look: LookReason, reason: str) -> PartitionResult:
    is_unclean = look is LookReason.UNCLEAN
    code = (
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        if is_unclean
        else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    )
    return PartitionResult(code, f"Failed to elect leader for the partition: {reason}.")
