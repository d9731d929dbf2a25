"""Collection of a partition's `Picture` from running brokers, ZooKeeper, and the files of dead brokers.

Invariant: no step waits longer than the time limit of one call, even if brokers are dead or paused.
"""

from __future__ import annotations

import asyncio

from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock, Rng
from minikafka.cluster import LocalCluster
from minikafka.cluster.processes import is_paused
from minikafka.explain.nodes import read_nodes
from minikafka.explain.past import Past
from minikafka.explain.picture import DOWN, PAUSED, SILENT, UP, BrokerPicture, Picture
from minikafka.explain.replica_files import read_replica_files
from minikafka.ledger.reader import Line, read_all
from minikafka.rpc.messages import EXPLAIN


def ledger_lines(found: LocalCluster, topic: str) -> list[Line]:
    """Return the ledger lines of all brokers, except lines that name only partitions of other topics."""
    record = found.record
    return read_all([found.directory.broker_ledger(b.id) for b in record.brokers], topic)


async def gather(found: LocalCluster, tp: TopicPartition, clock: Clock, rng: Rng) -> Picture:
    """Collect and return all data about the partition. Raises ClusterError if there is no cluster."""
    body = {"topic": tp.topic, "partition": tp.partition}
    answers, nodes = await asyncio.gather(
        found.ask(EXPLAIN, body), read_nodes(found.zookeeper, tp, clock, rng)
    )
    brokers = {}
    for broker in found.record.brokers:
        answer = answers.get(broker.id)
        if answer is None or isinstance(answer, Exception):
            brokers[broker.id] = BrokerPicture(broker.id, _process(found, broker.id))
        else:
            brokers[broker.id] = BrokerPicture(broker.id, UP, answer)
    files = {
        id_: read_replica_files(found.directory.broker_data(id_), tp)
        for id_, broker in brokers.items()
        if broker.answer is None
    }
    return Picture(tp, brokers, nodes, Past(ledger_lines(found, tp.topic), tp), files)


def _process(found: LocalCluster, broker_id: int) -> str:
    process = found.process(broker_id)
    if process is None:
        return DOWN
    return PAUSED if is_paused(process) else SILENT
