"""ISRs in the nodes `ISR`: one compare-and-set per change, with the epoch of the leader (R26, S29)."""

from __future__ import annotations

from collections.abc import Callable

from minikafka.base.model import LeaderAndIsr, TopicPartition
from minikafka.base.ports import ZooKeeper
from minikafka.broker.capabilities import IsrOutcome, IsrWrite
from minikafka.broker.modes.zookeeper.lost_answers import compare_and_set
from minikafka.zk.nodes.leaders import partitions


class LeadersIsrs:
    """IsrStore of the leader-coordinated mode. The `state_version` of a state is the version of the node `ISR`.

    `on_outcome(tp, outcome)` is called after each write, before the outcome is returned. After a written ISR, a
    reassignment may be complete. After a conflict, the leader must read the partition again, and then lead on in a
    higher epoch or follow.
    """

    def __init__(
        self, zookeeper: ZooKeeper, on_outcome: Callable[[TopicPartition, IsrOutcome], None]
    ) -> None:
        self._zookeeper = zookeeper
        self._on_outcome = on_outcome

    async def write(
        self, tp: TopicPartition, state: LeaderAndIsr, is_wanted: Callable[[], bool]
    ) -> IsrWrite:
        """Write the in-sync replicas of a partition that this broker leads.

        Returns when the outcome is certain. Before each attempt, `is_wanted()` is called; if it returns False, the
        outcome is ABANDONED.
        """
        operation = partitions.isr_write(tp, state.isr, state.leader_epoch, state.state_version)
        written = await compare_and_set(self._zookeeper, operation, is_wanted)
        self._on_outcome(tp, written.outcome)
        return written
