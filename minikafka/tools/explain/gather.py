"""Collection of a partition's `PartitionEvidence` from running brokers, ZooKeeper, and the files of dead brokers.

Invariant: no step waits longer than the time limit of one call, even if brokers are dead or paused. No file is
changed.
"""

from __future__ import annotations

import asyncio
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeAlias

import minikafka.tools.cluster.zookeeper.access as zookeeper_access
import minikafka.tools.explain.nodes as zookeeper_nodes
from minikafka.base.model import TopicPartition
from minikafka.base.names import offsets_of
from minikafka.base.ports import Clock, Rng
from minikafka.broker.ledger.reader import Line, read_all, read_group
from minikafka.broker.rpc.messages import EXPLAIN, PLAN
from minikafka.storage.log.checkpoints import HIGH_WATERMARKS, decode_offsets
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.cluster.observation.access import BrokerAccess, inter_broker_access
from minikafka.tools.cluster.observation.causes import Cause, causes_of
from minikafka.tools.cluster.observation.sights import (
    REFUSED,
    RUNS,
    UNREACHABLE,
    BrokerSight,
    Sights,
    look,
)
from minikafka.tools.cluster.observation.state import ClusterState
from minikafka.tools.cluster.processes import is_paused
from minikafka.tools.cluster.running import RunningProcesses
from minikafka.tools.explain.evidence import (
    SILENT,
    UP,
    Answer,
    BrokerEvidence,
    Nodes,
    PartitionEvidence,
    ReplicaFiles,
)
from minikafka.tools.explain.open_transactions import seems_hanging, still_open
from minikafka.tools.explain.past import Past

ANSWER_MS: Final = 1_000
"""Time for a broker to answer."""
PLAN_MS: Final = 60_000
"""Time for the controller to make a plan."""

Plan: TypeAlias = list[dict[str, Any]]
"""What an operation would cause, as lines like those of the ledger."""


class Sources(ABC):
    """The brokers, ZooKeeper and ledgers of a cluster, read for one explanation.

    Methods raise ClusterError and KafkaError.

    `where`: the options that name the cluster in commands, with a space in front. `place`: where the cluster is, in
    errors.
    """

    def __init__(self, clock: Clock, where: str, place: str) -> None:
        self.clock = clock
        self.where = where
        self.place = place

    @abstractmethod
    def access(self) -> BrokerAccess:
        """Return how clients connect to the brokers that answer, or to all brokers if none does."""

    @abstractmethod
    async def ask(self, method: str, body: dict[str, Any]) -> dict[int, Answer]:
        """Ask all running brokers; return the answers by broker id, without failed calls."""

    @abstractmethod
    async def plans(self, question: dict[str, Any]) -> dict[int, Plan | Exception]:
        """Ask all running brokers what an operation would cause; return plans and errors by broker id."""

    @abstractmethod
    async def sights(self) -> Sights:
        """Return the condition of every process of the cluster, as the first call found it."""

    @abstractmethod
    async def state(self) -> ClusterState:
        """Return the state of every partition, as reported by the brokers that answer."""

    @abstractmethod
    async def nodes(self, tp: TopicPartition) -> Nodes | None:
        """Return ZooKeeper's data about the partition; None if they are not known."""

    @abstractmethod
    async def partition_lines(self, topic: str) -> list[Line]:
        """Return the ledger lines of all brokers, except lines that name only partitions of other topics."""

    @abstractmethod
    async def group_lines(self, group: str) -> list[Line]:
        """Return the lines about a consumer group in the ledgers of all brokers."""

    @abstractmethod
    def files(self, broker: int, tp: TopicPartition) -> ReplicaFiles | None:
        """Return what the files of a broker that does not answer tell about its replica; None if they are elsewhere."""

    @abstractmethod
    def topics(self) -> Iterable[str]:
        """Return the names of the topics that are known without a question."""

    async def unseen(self) -> list[str]:
        """Return what could not be seen, as sentences."""
        return []

    async def causes(self) -> list[Cause]:
        """Return the root causes of the problems of the whole cluster."""
        return causes_of(await self.sights(), self.where)

    async def partition(self, tp: TopicPartition) -> PartitionEvidence:
        """Return the evidence of a partition."""
        return await gather(self, tp)


class LocalSources(Sources):
    """The sources of a cluster in a data directory of this machine."""

    def __init__(self, found: LocalCluster, clock: Clock, rng: Rng, where: str = "") -> None:
        super().__init__(clock, where, str(found.directory.path))
        self.found = found
        self._rng = rng
        self._sights: Sights | None = None

    @cached_property
    def answering_ids(self) -> list[int]:
        """The ids of the brokers that run and are not paused."""
        return RunningProcesses(self.found.directory, self.clock).answering_ids(self.found.record)

    def access(self) -> BrokerAccess:
        """Return how brokers connect to the brokers that answer, or to all brokers if none does."""
        record = self.found.record
        brokers = [record.broker(id_) for id_ in self.answering_ids] or record.brokers
        return inter_broker_access(self.found.directory, brokers, self._rng)

    async def ask(self, method: str, body: dict[str, Any]) -> dict[int, Answer]:
        """Call the control plane of all running brokers; return the answers by broker id, without failed calls."""
        answers = await self.found.ask(method, body, ANSWER_MS, self.answering_ids)
        return {id_: found for id_, found in answers.items() if not isinstance(found, Exception)}

    async def plans(self, question: dict[str, Any]) -> dict[int, Plan | Exception]:
        """Call the control plane of all running brokers for what an operation would cause."""
        answers = await self.found.ask(PLAN, question, PLAN_MS)
        return {
            id_: found if isinstance(found, Exception) else list(found["lines"])
            for id_, found in answers.items()
        }

    async def sights(self) -> Sights:
        """Return the condition of every process of the cluster, as the first call found it."""
        if self._sights is None:
            self._sights = await look(self.found.directory, self.clock, self._rng)
        return self._sights

    async def state(self) -> ClusterState:
        """Return the state of every partition, as reported by the brokers that answer."""
        return await self.found.state()

    async def nodes(self, tp: TopicPartition) -> Nodes | None:
        """Return ZooKeeper's data about the partition; None at once if the cluster's ZooKeeper is down or paused."""
        record = self.found.record
        process = RunningProcesses(self.found.directory, self.clock).zookeeper(record)
        if record.runs_zookeeper and (process is None or is_paused(process)):
            return None
        access = zookeeper_access.access_of_cluster(self.found.directory, record, self._rng)
        return await zookeeper_nodes.read_nodes(
            self.found.zookeeper, tp, self.clock, self._rng, access
        )

    async def partition_lines(self, topic: str) -> list[Line]:
        """Read the ledger lines of all brokers from files."""
        return read_all(self._ledgers(), topic)

    async def group_lines(self, group: str) -> list[Line]:
        """Read the lines about a consumer group from the files of all ledgers."""
        return read_group(self._ledgers(), group)

    def files(self, broker: int, tp: TopicPartition) -> ReplicaFiles | None:
        """Return the high watermark and the log end offset in the files of a replica."""
        return read_replica_files(self.found.directory.broker_data(broker), tp)

    def topics(self) -> Iterable[str]:
        """Return the names of the topics in the data directories."""
        return self.found.directory.topics()

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
    for broker, sight in sights.brokers.items():
        if (answer := answers.get(broker)) is not None:
            brokers[broker] = BrokerEvidence(broker, UP, answer)
            continue
        brokers[broker] = BrokerEvidence(broker, _process(sight))
        if (found := sources.files(broker, tp)) is not None:
            files[broker] = found
    past = Past(await sources.partition_lines(tp.topic), tp)
    causes = tuple(await sources.causes())
    return PartitionEvidence(
        tp, brokers, nodes, past, files, causes, sights.coordination, sources.where
    )


def _process(sight: BrokerSight) -> str:
    """Return the state of a broker that does not answer. A process that ended refuses connections at once."""
    state = sight.process.state
    is_refused = state == UNREACHABLE and sight.failure == REFUSED
    return SILENT if state == RUNS or is_refused else state


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
