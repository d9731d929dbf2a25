"""The role of one replica of a partition, its leader epoch, and which requests it accepts in this role (R41)."""

from __future__ import annotations

from typing import Final

from minikafka.base.errors import ErrorCode
from minikafka.base.model import NO_LEADER, BrokerId, TopicPartition
from minikafka.storage.log.log import Log
from minikafka.storage.replication.read_limits import ReadLimits

_NOT_LEADER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_FENCED: Final = int(ErrorCode.FENCED_LEADER_EPOCH)
_UNKNOWN_EPOCH: Final = int(ErrorCode.UNKNOWN_LEADER_EPOCH)


class ReplicaRole(ReadLimits):
    """The role of one replica, as leader or follower. `Partition` changes it."""

    __slots__ = (
        "adding",
        "broker_id",
        "controller_epoch",
        "epoch_start_offset",
        "followed_before",
        "is_follower",
        "is_leader",
        "is_open",
        "leader",
        "leader_epoch",
        "offline",
        "removing",
        "replicas",
        "state_version",
        "topic",
        "tp",
    )

    def __init__(self, tp: TopicPartition, broker_id: BrokerId, log: Log) -> None:
        super().__init__(log)
        self.tp = tp
        self.topic = tp.topic.encode()
        self.broker_id = broker_id
        self.is_leader = self.is_follower = False
        self.is_open = False
        """True if the replica leads and serves clients. False while a leader is opening: it serves followers only."""
        self.offline = False
        self.leader: BrokerId = NO_LEADER
        self.followed_before: BrokerId = NO_LEADER
        """The leader that this replica followed in `leader_epoch` when `end_role` ended its role."""
        self.leader_epoch = -1
        self.controller_epoch = -1
        self.state_version = -1
        self.epoch_start_offset = 0
        self.replicas: tuple[BrokerId, ...] = ()
        self.adding: tuple[BrokerId, ...] = ()
        self.removing: tuple[BrokerId, ...] = ()

    @property
    def role(self) -> str:
        """The role in one word, for people."""
        led = "leader" if self.is_open else "opening leader"
        return led if self.is_leader else "follower"

    @property
    def latest_offset_is_known(self) -> bool:
        """False right after an election, while the high watermark may be lower than the former leader's (KIP-207)."""
        return self.high_watermark >= min(self.epoch_start_offset, self.log.log_end_offset)

    def check_leader_epoch(self, epoch: int) -> int:
        """Return the error code for a client's request to the leader, 0 if it is accepted (R41).

        `epoch` is the leader epoch in the request, -1 if the request has no epoch.
        """
        if self.offline:
            return int(ErrorCode.KAFKA_STORAGE_ERROR)
        if epoch >= 0 and epoch != self.leader_epoch:
            return _FENCED if epoch < self.leader_epoch else _UNKNOWN_EPOCH
        return 0 if self.is_open else _NOT_LEADER

    def leads_in(self, epoch: int) -> bool:
        """True if this replica leads, open or opening, in this epoch, and its log directory is online."""
        return self.is_leader and self.leader_epoch == epoch and not self.offline

    def check_follower(self, epoch: int) -> int:
        """Return the error code as `check_leader_epoch` does, but let an opening leader accept the request too."""
        error = self.check_leader_epoch(epoch)
        return 0 if error == _NOT_LEADER and self.is_leader else error

    def check_reader(self, epoch: int) -> int:
        """Return the error code as `check_leader_epoch` does, but accept a request to a follower too (KIP-392)."""
        error = self.check_leader_epoch(epoch)
        return 0 if error == _NOT_LEADER and self.is_follower else error

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """Return (largest epoch <= `epoch`, end offset of that epoch), or (-1, -1) if there is none (R38)."""
        return self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)

    def diverging(self, last_fetched_epoch: int, fetch_offset: int) -> tuple[int, int] | None:
        """Return (epoch, end offset) at which a follower's log diverges from this log, None if the logs agree.

        `last_fetched_epoch` is the epoch of the follower's record before `fetch_offset` (KIP-595, R40).
        """
        log = self.log
        return log.epochs.diverging(last_fetched_epoch, fetch_offset, log.log_end_offset)
