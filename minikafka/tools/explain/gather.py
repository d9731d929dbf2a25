"""Collection of a partition's `PartitionEvidence` from running brokers, ZooKeeper, and the files of dead brokers.

Invariant: no step waits longer than the time limit of one call, even if brokers are dead or paused. No file is
changed.
"""

from __future__ import annotations

import asyncio
import struct
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from minikafka.base.model import TopicPartition
from minikafka.base.names import offsets_of
from minikafka.base.ports import Clock, Rng
from minikafka.broker.ledger.reader import Line, read_all, read_group
from minikafka.broker.rpc.messages import EXPLAIN
from minikafka.storage.log.checkpoints import HIGH_WATERMARKS, decode_offsets
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.cluster.observation.access import BrokerAccess, inter_broker_access
from minikafka.tools.cluster.observation.causes import Cause, causes_of
from minikafka.tools.cluster.observation.sights import RUNS, Sights, look
from minikafka.tools.cluster.processes import is_paused
from minikafka.tools.cluster.running import RunningProcesses
from minikafka.tools.cluster.zookeeper.access import access_of_cluster
from minikafka.tools.explain.evidence import (
    SILENT,
    UP,
    Answer,
    BrokerEvidence,
    Nodes,
    PartitionEvidence,
    ReplicaFiles,
)
from minikafka.tools.explain.nodes import read_nodes
from minikafka.tools.explain.open_transactions import seems_hanging, still_open
from minikafka.tools.explain.past import Past

ANSWER_MS: Final = 1_000
"""Time for a broker to answer."""


class Sources:
    """The brokers, ZooKeeper and files of a cluster, read for one explanation. Methods raise ClusterError.

    `where`: the options that name the cluster in commands, with a space in front.
    """

    def __init__(self, found: LocalCluster, clock: Clock, rng: Rng, where: str = "") -> None:
        self.found = found
        self.clock = clock
        self._rng = rng
        self.where = where
        self._sights: Sights | None = None

    @cached_property
    def answering_ids(self) -> list[int]:
        """The ids of the brokers that run and are not paused."""
        return RunningProcesses(self.found.directory, self.clock).answering_ids(self.found.record)

    def access(self) -> BrokerAccess:
        """Return how clients connect to the brokers that answer, or to all brokers if none does."""
        record = self.found.record
        brokers = [record.broker(id_) for id_ in self.answering_ids] or record.brokers
        return inter_broker_access(self.found.directory, brokers, self._rng)

    async def ask(self, method: str, body: dict[str, Any]) -> dict[int, Answer]:
        """Call the control plane of all running brokers; return the answers by broker id, without failed calls."""
        answers = await self.found.ask(method, body, ANSWER_MS, self.answering_ids)
        return {id_: found for id_, found in answers.items() if not isinstance(found, Exception)}

    async def sights(self) -> Sights:
        """Return the condition of every process of the cluster, as the first call found it."""
        if self._sights is None:
            self._sights = await look(self.found.directory, self.clock, self._rng)
        return self._sights

    async def causes(self) -> list[Cause]:
        """Return the root causes of the problems of the whole cluster."""
        return causes_of(await self.sights(), self.where)

    async def nodes(self, tp: TopicPartition) -> Nodes | None:
        """Return ZooKeeper's data about the partition; None at once if the cluster's ZooKeeper is down or paused."""
        record = self.found.record
        process = RunningProcesses(self.found.directory, self.clock).zookeeper(record)
        if record.runs_zookeeper and (process is None or is_paused(process)):
            return None
        access = access_of_cluster(self.found.directory, record, self._rng)
        return await read_nodes(self.found.zookeeper, tp, self.clock, self._rng, access)

    async def partition(self, tp: TopicPartition) -> PartitionEvidence:
        """Return the evidence of a partition."""
        return await gather(self, tp)

    def partition_lines(self, topic: str) -> list[Line]:
        """Return the ledger lines of all brokers, except lines that name only partitions of other topics."""
        return read_all(self._ledgers(), topic)

    def group_lines(self, group: str) -> list[Line]:
        """Return the lines about a consumer group in the ledgers of all brokers."""
        return read_group(self._ledgers(), group)

    def _ledgers(self) -> list[Path]:
        return [self.found.directory.broker_ledger(b.id) for b in self.found.record.brokers]


async def gather(sources: Sources, tp: TopicPartition) -> PartitionEvidence:
    """Collect and return all data about the partition. Raises ClusterError if there is no cluster."""
    body = {"topic": tp.topic, "partition": tp.partition}
    answers, nodes, sights = await asyncio.gather(
        sources.ask(EXPLAIN, body), sources.nodes(tp), sources.sights()
    )
    if seems_hanging(answers):
        # The leader may have answered before the end of a transaction, and its coordinator after it.
        answers = still_open(answers, await sources.ask(EXPLAIN, body))
    brokers, files = {}, {}
    for broker in sources.found.record.brokers:
        if (answer := answers.get(broker.id)) is not None:
            brokers[broker.id] = BrokerEvidence(broker.id, UP, answer)
            continue
        state = sights.brokers[broker.id].process.state
        brokers[broker.id] = BrokerEvidence(broker.id, SILENT if state == RUNS else state)
        data = sources.found.directory.broker_data(broker.id)
        files[broker.id] = read_replica_files(data, tp)
    past = Past(sources.partition_lines(tp.topic), tp)
    mode = sources.found.record.coordination
    causes = tuple(await sources.causes())
    return PartitionEvidence(tp, brokers, nodes, past, files, causes, mode, sources.where)


_BATCH: Final = struct.Struct(">qi")
"""Format of the first two fields of every batch: base offset, and length of the remaining fields."""
_LAST_OFFSET_DELTA: Final = struct.Struct(">i")
_LAST_OFFSET_DELTA_AT: Final = 23
_HEADER_BYTES: Final = 61


def read_replica_files(log_dir: Path, tp: TopicPartition) -> ReplicaFiles:
    """Return the high watermark and the log end offset in the files of the partition's replica."""
    return ReplicaFiles(_high_watermark(log_dir, tp), _log_end_offset(log_dir / str(tp)))


def _high_watermark(log_dir: Path, tp: TopicPartition) -> int | None:
    try:
        return decode_offsets((log_dir / HIGH_WATERMARKS).read_bytes()).get(tp)
    except (OSError, ValueError, IndexError):
        return None


def _log_end_offset(directory: Path) -> int | None:
    """Return the offset after the last complete batch of the last segment."""
    try:
        end = offsets_of((path.name for path in directory.iterdir()), ".log")[-1]
        data = (directory / f"{end:020d}.log").read_bytes()
    except (OSError, IndexError):
        return None
    position = 0
    while position + _HEADER_BYTES <= len(data):
        base, length = _BATCH.unpack_from(data, position)
        after = position + _BATCH.size + length
        if length <= 0 or after > len(data):
            break
        last_delta = _LAST_OFFSET_DELTA.unpack_from(data, position + _LAST_OFFSET_DELTA_AT)[0]
        end = int(base + last_delta + 1)
        position = after
    return end
