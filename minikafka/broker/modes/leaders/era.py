"""The time between two starts of this broker's coordination, in which its session lets it act."""

from __future__ import annotations

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Tasks
from minikafka.broker.modes.leaders.lanes import Lanes


class Era:
    """One start, and everything that was begun since. It ends with the lease of its session, or at a shutdown.

    Invariant: what was begun in an era has no effect after its end. Writes name the generation of its session, and
    orders to the replicas have `fence`.
    """

    def __init__(self, generation: int, tasks: Tasks) -> None:
        self.generation = generation
        self.lanes = Lanes(tasks)
        self.is_over = False
        self.to_read: set[TopicPartition] = set()
        """Partitions that a lane is going to read."""

    def end(self) -> None:
        """Let nothing that was begun in this era have an effect any longer."""
        self.is_over = True

    def fence(self) -> None:
        """Raise KafkaError if the era is over."""
        if self.is_over:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the session's lease has ended")
