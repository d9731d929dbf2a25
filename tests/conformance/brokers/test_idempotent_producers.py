"""Idempotent producers write every record once, in order and without a fatal error while brokers fail and return."""

from __future__ import annotations

import asyncio

import pytest
from support.clients.idempotent_producers import TOPIC, IdempotentProducer, JavaClient, Librdkafka
from support.clusters.producer_storm import BROKERS, KEYS, TP, Storm, run_storm
from support.forms import seeds
from support.storage.logs import read_all
from support.until import until

from minikafka.client import NewTopic
from minikafka.kafka.records.batch import records
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded

pytestmark = pytest.mark.usefixtures("each_mode")
PRODUCERS = (Librdkafka, JavaClient)
SEEDS = seeds(3, 8)
RECORDS = 60


@pytest.mark.row("R72")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("producing", PRODUCERS)
def test_every_record_is_written_once_and_in_order_during_random_faults(
    producing: type[IdempotentProducer], seed: int
) -> None:
    run_storm(seed, producing)


@pytest.mark.parametrize("producing", PRODUCERS)
def test_restarted_broker_that_becomes_leader_stores_batches_in_flight_once(
    producing: type[IdempotentProducer],
) -> None:
    """A restarted broker that becomes leader must know all batches in flight, from the snapshot written at its stop.

    Kafka's snapshots hold only the last batch of each producer. That is enough for Kafka, because Kafka reads the
    next request of a connection only after it has answered the previous request.
    """

    async def run() -> None:
        leader, restarted, slow = BROKERS
        keys = {**KEYS, "replica.lag.time.max.ms": 60_000}
        cluster = MemoryCluster(ids=range(BROKERS[0], BROKERS[-1] + 1), **keys)
        for broker in BROKERS:
            await cluster.start(broker)
        async with cluster.client() as client:
            await client.create_topics(NewTopic(TOPIC, assignment={0: BROKERS}))
        storm = Storm(cluster, 1)
        producer = producing(cluster, 1, RECORDS)
        writing = asyncio.get_running_loop().create_task(producer.run())
        await until(lambda: len(producer.acknowledged) > RECORDS // 4)
        storm.freeze(slow)  # from here on, nothing is committed
        await asyncio.sleep(0.1)
        await cluster.stop(restarted)
        await cluster.start(restarted)
        end = cluster.brokers[leader].replicas.partitions[TP].log.log_end_offset
        await until(lambda: log_end(cluster, restarted) == end)
        await until(lambda: restarted in cluster.brokers[leader].replicas.partitions[TP].isr)
        assert end > len(producer.acknowledged) + 1, "several batches are in flight"
        await storm.kill(leader)
        await until(lambda: leads(cluster, restarted))
        await asyncio.sleep(0.5)
        await storm.heal()
        await writing
        await until(lambda: storm.disagreement() == "")
        log = cluster.brokers[restarted].replicas.partitions[TP].log
        assert [int(record.value or b"") for record in records(read_all(log))] == [*range(RECORDS)]
        for broker in tuple(cluster.brokers):
            await cluster.stop(broker, controlled=False)

    run_seeded(0, run())


def log_end(cluster: MemoryCluster, broker: int) -> int:
    replica = cluster.brokers[broker].replicas.partitions.get(TP)
    return -1 if replica is None else replica.log.log_end_offset


def leads(cluster: MemoryCluster, broker: int) -> bool:
    return cluster.brokers[broker].replicas.partitions[TP].is_leader
