"""Snapshots of a whole cluster, ZooKeeper included: taken at one moment, and restored."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from minikafka.base.model import TopicPartition
from minikafka.tools.cluster.directory import ClusterError, ClusterRecord
from minikafka.tools.cluster.lifecycle import START_TIMEOUT_MS
from minikafka.tools.cluster.observation.state import ClusterState
from minikafka.tools.cluster.time_and_state.copied_files import CopiedFiles, replace_content
from minikafka.tools.cluster.time_and_state.snapshot import (
    RESTORING,
    ClusterSnapshot,
    Snapshots,
    check_restored,
)
from minikafka.tools.cluster.time_and_state.stopping import all_stopped
from minikafka.tools.cluster.time_and_state.upkeep import MaintainedCluster


class SnapshottedCluster(MaintainedCluster):
    """The methods of LocalCluster that take, restore, list and remove snapshots."""

    async def start(
        self, broker_id: int | None = None, *, timeout_ms: int = START_TIMEOUT_MS
    ) -> None:
        """Start one broker, or ZooKeeper and all brokers that are down; return when the brokers serve clients.

        Raises ClusterError as `OwnedCluster.start` does, and if a restore was interrupted.
        """
        check_restored(self.directory)
        await super().start(broker_id, timeout_ms=timeout_ms)

    async def start_zookeeper(self) -> None:
        """Start the cluster's ZooKeeper again, with its port and data. Raises ClusterError if it already runs."""
        check_restored(self.directory)
        await super().start_zookeeper()

    async def snapshot(self, name: str) -> ClusterSnapshot:
        """Keep the state of all brokers and ZooKeeper at one moment as `snapshots/NAME` in the data directory.

        All processes stand while files are linked and copied. Everything acknowledged before the call is in the
        snapshot. Raises ClusterError for an invalid or used name, and for a ZooKeeper that the cluster does not run.
        """
        snapshots = Snapshots(self.directory)
        snapshots.check_free(name)
        record = self._record_with_own_zookeeper("taken")
        async with self.directory.locked(self._clock):
            snapshots.check_free(name)
            path = snapshots.unfinished(name)
            path.mkdir(mode=0o700, parents=True)
            try:
                taken = await self._copy(record, name, path)
                snapshots.finish(path, taken)
            except BaseException:
                shutil.rmtree(path, ignore_errors=True)
                raise
        return taken

    async def _copy(self, record: ClusterRecord, name: str, path: Path) -> ClusterSnapshot:
        """Copy the data while no process runs. Nothing else runs in this thread meanwhile."""
        files, brokers = CopiedFiles(path), self._running.brokers(record)
        began, taken_ms = self._clock.now(), self._clock.wall_ms()
        async with all_stopped(brokers, self._running.zookeeper(record), self._clock):
            for below, directory in Snapshots(self.directory).data(record).items():
                if directory.is_dir():
                    files.copy(directory, below)
            stopped_ms = self._clock.now() - began
        return ClusterSnapshot(
            name=name,
            taken_ms=taken_ms,
            stopped_ms=stopped_ms,
            copied_bytes=files.copied_bytes,
            linked_bytes=files.linked_bytes,
            brokers=tuple(broker.id for broker in record.brokers),
            coordination=record.coordination,
            zookeeper=record.zookeeper_kind,
            cluster_id=self._cluster_id(record),
            is_secure=record.is_secure,
            advanced_ms=record.advanced_ms,
            linked=files.linked,
        )

    async def restore(self, name: str, *, timeout_ms: int = START_TIMEOUT_MS) -> None:
        """Kill all processes, replace the data by those of a snapshot, start all; return when all records can be read.

        Ids, ports and secrets stay. Clients that go on see the older state. Raises ClusterError if there is no such
        snapshot or if it does not fit this cluster, and then changes nothing.
        """
        snapshots = Snapshots(self.directory)
        found = snapshots.read(name)
        record = self._record_with_own_zookeeper("restored")
        found.check_cluster(record, self._cluster_id(record))
        snapshots.check_links(found)
        self._check_owner(record)
        async with self.directory.locked(self._clock):
            await self._replace_data(snapshots, found)
        await self.start(timeout_ms=timeout_ms)
        await self._until_committed(timeout_ms)

    async def _until_committed(self, timeout_ms: int) -> None:
        """Wait until consumers can read every record: a new leader does not know yet what is committed."""
        ends: dict[TopicPartition, int] = {}

        def is_committed(state: ClusterState) -> bool:
            waiting = False
            for tp, view in state.partitions.items():
                end = min(ends.setdefault(tp, view.log_end_offset or 0), view.log_end_offset or 0)
                waiting = waiting or not view.is_available or (view.high_watermark or 0) < end
            return not waiting

        failure = "not every partition had a leader and all its replicas in sync"
        await self._wait_for(is_committed, failure, timeout_ms)

    async def _replace_data(self, snapshots: Snapshots, found: ClusterSnapshot) -> None:
        record = self.record
        work = self.directory.path / f".{RESTORING}"
        if work.exists():
            shutil.rmtree(work)
        for below in snapshots.data(record):
            if (source := snapshots.path(found.name) / below).is_dir():
                CopiedFiles(work / "new", found.linked).copy(source, below)
        marker = self.directory.path / RESTORING
        await self._running.kill_all(self._running.every_process(record))
        marker.write_text(found.name)
        for below, directory in snapshots.data(record).items():
            (new := work / "new" / below).mkdir(parents=True, exist_ok=True)
            replace_content(directory, new, work / "former" / below)
        self.directory.write(replace(record, advanced_ms=found.advanced_ms))
        marker.unlink()
        shutil.rmtree(work)

    def snapshots(self) -> list[ClusterSnapshot]:
        """Return the snapshots in the data directory, the oldest first."""
        return Snapshots(self.directory).all()

    def remove_snapshot(self, name: str) -> None:
        """Remove a snapshot. Raises ClusterError if there is none with this name."""
        Snapshots(self.directory).remove(name)

    def _record_with_own_zookeeper(self, verb: str) -> ClusterRecord:
        record = self.record
        if not record.runs_zookeeper:
            text = f"this cluster uses the ZooKeeper at {record.zookeeper}, which it does not run"
            raise ClusterError(f"{text}: its data cannot be copied, so no snapshot can be {verb}")
        return record

    def _cluster_id(self, record: ClusterRecord) -> str:
        ids = (self.directory.cluster_id(broker.id) for broker in record.brokers)
        return next(filter(None, ids), "")

    def _check_owner(self, record: ClusterRecord) -> None:
        """Raise ClusterError if another process runs this attached cluster: its brokers end with that process."""
        if record.owner != self._request.owner and self._running.is_attached(record):
            assert record.owner is not None
            text = f"{self.directory.path} is in use by process {record.owner.pid}"
            raise ClusterError(f"{text}: only that process can restore a snapshot")
