"""Elections that an administrator requests (KIP-460, R61).

Nobody elects a leader for others: a leader is asked to give up its leadership for the preferred replica, or a replica
outside the ISR is allowed to lead. Nothing is deleted without the leader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from minikafka.base.errors import ErrorCode
from minikafka.base.model import Broker, BrokerId, PartitionResult, TopicPartition
from minikafka.base.ports import ZooKeeper
from minikafka.broker.modes.leaders.peers import Peers
from minikafka.leaders.model import PartitionView
from minikafka.rpc.coordination import PARTITIONS_MAX, Look
from minikafka.zk.nodes.faults import Faults
from minikafka.zk.nodes.leaders import partitions

_Results: TypeAlias = dict[TopicPartition, PartitionResult]
_Choice: TypeAlias = BrokerId | PartitionResult
"""The broker that must look at a partition, or the result without a look."""
_ELECTED: Final = PartitionResult()
_NOT_NEEDED: Final = PartitionResult(
    ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
)
_UNKNOWN: Final = PartitionResult(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."
)
_DELETED: Final = PartitionResult(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted.")
_CANNOT_GIVE_UP: Final = (
    "has not given up its leadership, because it waits for the other in-sync replicas, or because the partition has"
    " just changed; try again"
)


class RequestedElections:
    """Asks the brokers that host the replicas to hold elections."""

    def __init__(self, zookeeper: ZooKeeper, peers: Peers, faults: Faults) -> None:
        self._zookeeper = zookeeper
        self._peers = peers
        self._faults = faults

    async def preferred(self, chosen: Sequence[TopicPartition] | None) -> _Results:
        """Let the leaders give up for the preferred replicas. Raises CoordinationError."""
        return await self._hold(chosen, Look.PREFERRED, _for_preferred)

    async def unclean(self, chosen: Sequence[TopicPartition] | None) -> _Results:
        """Let a live replica lead each partition without a leader. Raises CoordinationError."""
        return await self._hold(chosen, Look.UNCLEAN, _for_unclean)

    async def _hold(
        self,
        chosen: Sequence[TopicPartition] | None,
        look: Look,
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
            choice = _refusal(views[tp]) or choose(tp, views[tp], live)
            if isinstance(choice, PartitionResult):
                results[tp] = choice
            else:
                asked.setdefault(choice, []).append(tp)
        for broker_id, tps in asked.items():
            results |= await self._ask(live[broker_id], look, tps)
        if look is Look.PREFERRED:
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
            tp: _unavailable(Look.PREFERRED, f"the leader {leaders[tp]} {_CANNOT_GIVE_UP}")
            for tp in chosen
            if (leader := views[tp].leader) is not None and leader.broker_id == leaders[tp]
        }

    async def _ask(self, broker: Broker, look: Look, tps: Sequence[TopicPartition]) -> _Results:
        results: _Results = {}
        for first in range(0, len(tps), PARTITIONS_MAX):
            part = tps[first : first + PARTITIONS_MAX]
            answered = await self._peers.look_again(broker, look, part)
            failed = _unavailable(look, f"broker {broker.id} does not answer")
            results |= dict.fromkeys(part, _ELECTED if answered else failed)
        return results


def _refusal(view: PartitionView) -> PartitionResult | None:
    if view.is_being_deleted:
        return _DELETED
    return _UNKNOWN if view.replicas is None else None


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
        return _unavailable(Look.PREFERRED, reason)
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
    return able[0] if able else _unavailable(Look.UNCLEAN, "no replica is alive")


def _unavailable(look: Look, reason: str) -> PartitionResult:
    is_unclean = look is Look.UNCLEAN
    code = (
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        if is_unclean
        else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    )
    return PartitionResult(code, f"Failed to elect leader for the partition: {reason}.")
