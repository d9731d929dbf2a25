"""Whole brokers on a ZooKeeper with malformed nodes: they log the fault and serve, or refuse to start with an error."""

from __future__ import annotations

import asyncio
import json
import random

import pytest
from support.brokers.garbage import garbage, places
from support.until import until

from minikafka.base.errors import ConfigError
from minikafka.client import NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded
from minikafka.simulation.zookeeper import ZooKeeperInMemory
from minikafka.zookeeper.nodes import layout


async def test_brokers_serve_clients_despite_malformed_registrations_and_notifications(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with MemoryCluster(2) as cluster:
        for name in ("²", "٣", "1_000", "x"):
            cluster.ensemble.put(f"{layout.BROKER_IDS}/{name}", b"\xff")
        for number, entity in enumerate(("topics/\\ud800", "brokers/²", "brokers/1_0")):
            data = f'{{"version":2,"entity_path":"{entity}"}}'.encode()
            cluster.ensemble.put(f"{layout.CONFIG_CHANGE_PREFIX}{number:010d}", data)
        notice = b'{"version":1,"partitions":[{"topic":"\\ud800","partition":0}]}'
        cluster.ensemble.put(f"{layout.ISR_CHANGE_PREFIX}0000000007", notice)
        await until(lambda: "isr_change_0000000007 is not readable" in caplog.text)
        await cluster.stop(
            cluster.brokers[0].capabilities.administration.controller_id, controlled=False
        )
        (left,) = cluster.brokers.values()
        await until(lambda: set(left.metadata.brokers) == {left.config.broker_id})
        async with cluster.client() as client:
            await client.create_topics(NewTopic("t", 1, 1))
            (done,) = await client.produce("t", [Record(value=b"served")], partition=0)
            assert done.offset == 0
    assert cluster.crashes == []


SETTINGS = ("topics/good", "topics/none", "brokers/0", "brokers/1", "brokers/<default>")
KEYS = ("retention.ms", "min.insync.replicas", "cleanup.policy", "broker.id", "x", "\ud800")
VALUES = ("-1", "²", "1_000", "\ud800", "", "NaN", "9" * 400, None, 7)


def put_garbage(ensemble: ZooKeeperInMemory, chance: random.Random, number: int) -> None:
    """Write one malformed node, or malformed settings and the notification of their change."""
    if chance.random() < 0.5:
        ensemble.put(places(chance), garbage(chance))
        return
    entity = chance.choice(SETTINGS)
    settings = {chance.choice(KEYS): chance.choice(VALUES) for _ in range(3)}
    data = json.dumps({"version": 1, "config": settings}).encode()
    ensemble.put(f"/config/{entity}", chance.choice([data, garbage(chance)]))
    notice = layout.encode_config_change(*entity.split("/"))
    ensemble.put(f"{layout.CONFIG_CHANGE_PREFIX}{1_000 + number:010d}", notice)


@pytest.mark.parametrize("seed", range(3))
def test_brokers_serve_clients_despite_generated_malformed_nodes(seed: int) -> None:
    async def scenario() -> None:
        chance = random.Random(seed)
        async with MemoryCluster(2) as cluster, cluster.client() as client:
            await client.create_topics(NewTopic("good", 1, 2))
            for number in range(100):
                put_garbage(cluster.ensemble, chance, number)
                await asyncio.sleep(chance.choice([0, 0, 0.3]))
                if number == 50:
                    cluster.ensemble.delete(layout.CONTROLLER)
            await asyncio.sleep(5)
            assert cluster.crashes == []
            assert (
                sum(
                    broker.capabilities.diagnostics.is_active for broker in cluster.brokers.values()
                )
                == 1
            )
            (done,) = await client.produce("good", [Record(value=b"served")], partition=0)
            assert done.offset == 0

    run_seeded(seed, scenario())


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b'{"id":"a b"}', b'{"id":"a\\r\\nX: 1"}'])
async def test_broker_with_an_unreadable_cluster_id_refuses_to_start_and_names_the_path(
    data: bytes,
) -> None:
    cluster = MemoryCluster(1)
    cluster.ensemble.put(layout.CLUSTER_ID, data)
    with pytest.raises(ConfigError, match="the node /cluster/id is not readable"):
        await cluster.start(0)


@pytest.mark.parametrize(
    "block",
    ['"block_start":"٣","block_end":"٣"', '"block_start":"0","block_end":"9223372036854775800"'],
)
async def test_no_producer_id_is_allocated_until_an_unusable_id_block_is_repaired(
    block: str,
) -> None:
    async with MemoryCluster(1) as cluster:
        data = f'{{"version":1,"broker":0,{block}}}'.encode()
        ids = cluster.brokers[0].producer_ids
        for _ in range(1_000):
            await ids.next()
        cluster.ensemble.put(layout.PRODUCER_ID_BLOCK, data)
        with pytest.raises(ValueError, match=layout.PRODUCER_ID_BLOCK):
            await ids.next()
        cluster.ensemble.put(layout.PRODUCER_ID_BLOCK, layout.encode_producer_ids(0, 0, 6_999))
        assert await ids.next() == 7_000
