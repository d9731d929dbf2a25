"""Collection of a partition's `Picture` from running brokers, ZooKeeper, and the files of dead brokers.

Invariant: no step waits longer than the time limit of one call, even if brokers are dead or paused.
"""

from __future__ import annotations

import asyncio
from typing import Final

from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock, Rng
from minikafka.cluster import LocalCluster
from minikafka.cluster.causes import causes_of
from minikafka.cluster.processes import is_paused
from minikafka.cluster.running import RunningProcesses
from minikafka.cluster.sights import RUNS, Sights, look
from minikafka.explain.nodes import read_nodes
from minikafka.explain.past import Past
from minikafka.explain.picture import SILENT, UP, BrokerPicture, Nodes, Picture
from minikafka.explain.replica_files import read_replica_files
from minikafka.ledger.reader import Line, read_all
from minikafka.rpc.messages import EXPLAIN

ANSWER_MS: Final = 1_000
"""Time for a broker to answer."""


def ledger_lines(found: LocalCluster, topic: str) -> list[Line]:
    """Return the ledger lines of all brokers, except lines that name only partitions of other topics."""
    record = found.record
    return read_all([found.directory.broker_ledger(b.id) for b in record.brokers], topic)


async def gather(
    found: LocalCluster,
    tp: TopicPartition,
    clock: Clock,
    rng: Rng,
    where: str = "",
    seen: Sights | None = None,
) -> Picture:
    """Collect and return all data about the partition. Raises ClusterError if there is no cluster.

    `where`: the options that name the cluster in commands, with a space in front. `seen`: a recent result of `look`.
    """
    running, record = RunningProcesses(found.directory, clock), found.record
    ids = running.answering_ids(record)
    body = {"topic": tp.topic, "partition": tp.partition}
    looking = look(found.directory, clock, rng) if seen is None else _given(seen)
    answers, nodes, sights = await asyncio.gather(
        found.ask(EXPLAIN, body, ANSWER_MS, ids),
        _nodes(found, running, tp, clock, rng),
        looking,
    )
    brokers = {}
    for broker in record.brokers:
        answer = answers.get(broker.id)
        if answer is None or isinstance(answer, Exception):
            state = sights.brokers[broker.id].process.state
            brokers[broker.id] = BrokerPicture(broker.id, SILENT if state == RUNS else state)
        else:
            brokers[broker.id] = BrokerPicture(broker.id, UP, answer)
    files = {
        id_: read_replica_files(found.directory.broker_data(id_), tp)
        for id_, broker in brokers.items()
        if broker.answer is None
    }
    past = Past(ledger_lines(found, tp.topic), tp)
    return Picture(tp, brokers, nodes, past, files, tuple(causes_of(sights, where)))


async def _given(seen: Sights) -> Sights:
    return seen


async def _nodes(
    found: LocalCluster, running: RunningProcesses, tp: TopicPartition, clock: Clock, rng: Rng
) -> Nodes | None:
    """Return ZooKeeper's data about the partition; None at once if the cluster's ZooKeeper is down or paused."""
    record = found.record
    process = running.zookeeper(record)
    if record.managed and (process is None or is_paused(process)):
        return None
    return await read_nodes(found.zookeeper, tp, clock, rng)
