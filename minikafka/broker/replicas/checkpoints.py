"""The periodic checkpoint files of all replicas: high watermarks, recovery points and log start offsets.

Invariant: high watermarks are not written before the first LeaderAndIsr of this broker. Otherwise a broker
that stops soon after its start would overwrite the checkpoint with a file that lacks its replicas (R35).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import StorageFailed
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock, Tasks
from minikafka.storage.log.manager import LogManager
from minikafka.storage.replication.partition import Partition


class Checkpoints:
    """The two loops that write the checkpoint files.

    After a failed write, `directory_failed(failure)` is called to take the log directory offline.
    """

    def __init__(
        self,
        logs: LogManager,
        partitions: Mapping[TopicPartition, Partition],
        config: BrokerConfig,
        clock: Clock,
        tasks: Tasks,
        directory_failed: Callable[[StorageFailed], None],
    ) -> None:
        self._logs = logs
        self._partitions = partitions
        self._config = config
        self._clock = clock
        self._tasks = tasks
        self._directory_failed = directory_failed
        self._has_started = False

    def start(self) -> None:
        """Start to write the checkpoint files periodically. Called when the replicas of this broker are known."""
        if not self._has_started:
            self._has_started = True
            self._tasks.spawn(self._checkpoint_high_watermarks(), "hw-checkpoint")
            self._tasks.spawn(self._checkpoint_logs(), "log-checkpoint")

    def close(self) -> None:
        """Write the high watermarks a last time, if `start` was called."""
        if self._has_started:
            self.write_high_watermarks()

    def write_high_watermarks(self) -> None:
        """Write the file `replication-offset-checkpoint` in every live log directory."""
        try:
            self._logs.checkpoint_high_watermarks(
                {tp: partition.high_watermark for tp, partition in self._partitions.items()}
            )
        except StorageFailed as failure:
            self._directory_failed(failure)

    async def _checkpoint_high_watermarks(self) -> None:
        while True:
            await self._clock.sleep(self._config.replica_high_watermark_checkpoint_interval_ms)
            self.write_high_watermarks()

    async def _checkpoint_logs(self) -> None:
        """Periodically fsync rolled segments, write the recovery points and fsync the checkpoints (R25).

        A restart then need not scan the rolled segments.
        """
        while True:
            await self._clock.sleep(self._config.log_flush_offset_checkpoint_interval_ms)
            try:
                await self._logs.syncs.sync_rolled()
                self._logs.checkpoint()
                await self._logs.sync_checkpoints()
            except StorageFailed as failure:
                self._directory_failed(failure)
