"""The periodic check of a leader: it repeats start requests, and returns leaderships to preferred replicas (C29)."""

from __future__ import annotations

from minikafka.leaders.election import may_take_over
from minikafka.leaders.events import BalanceDue
from minikafka.leaders.model import PartitionView, ReplicaStatus
from minikafka.leaders.partitions import Partitions
from minikafka.leaders.picture import Picture, Replica
from minikafka.leaders.reassignment import Reassignments


class Balance:
    """The balance of the leaderships of one broker."""

    def __init__(
        self, picture: Picture, partitions: Partitions, reassignments: Reassignments
    ) -> None:
        self._picture = picture
        self._reassignments = reassignments
        self._partitions = partitions

    def check(self, event: BalanceDue) -> None:
        """Repeat start requests, then give up each leadership that the preferred replica can take at once."""
        for tp, view in event.views.items():
            replica = self._picture.replicas.get(tp)
            if replica is None:
                continue
            self._reassignments.repeat_starts(replica, view, event.live)
            self._partitions.decide(replica, view, event.live)
            if (
                event.may_move
                and self._is_stable(replica, view)
                and may_take_over(view, event.live)
            ):
                self._partitions.give_up(replica, view)

    def _is_stable(self, replica: Replica, view: PartitionView) -> bool:
        """True if this broker leads in the view's epoch, with the view's replicas and without a reassignment."""
        return (
            replica.status is ReplicaStatus.LEADING
            and view.reassignment is None
            and view.epoch == replica.epoch
            and view.hosts == replica.hosts
        )
