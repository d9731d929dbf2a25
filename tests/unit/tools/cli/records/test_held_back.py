"""`consume --isolation-level read_committed` names the open transaction that it waits for, or that it ends before."""

from __future__ import annotations

import asyncio

import pytest
from support.clients.transactional_client import TransactionalProducer

from minikafka.base.model import TopicPartition
from minikafka.client import NewTopic
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded
from minikafka.tools.cli.records.offsets import Range
from minikafka.tools.cli.records.topic_reader import Reading

REASON = "% tx-0: records from offset 0 on are held back by an open transaction of transactional id pay (producer"


@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize("until_end", [False, True])
def test_consume_names_the_open_transaction_on_standard_error(capsys, until_end, quiet) -> None:
    async def scene() -> None:
        config = {"offsets_topic_num_partitions": 2, "transaction_state_log_num_partitions": 2}
        async with (
            MemoryCluster(3, **config) as cluster,
            cluster.client(read_committed=True) as client,
        ):
            await client.create_topics(NewTopic("tx", 1, 3))
            producer = TransactionalProducer(cluster, "pay")
            await producer.init()
            await producer.produce(TopicPartition("tx", 0), b"1")
            reading = Reading("tx", None, Range("earliest"), until_end, None, quiet, True)
            task = asyncio.ensure_future(reading.run(client, print))
            await asyncio.wait([task], timeout=10)
            assert task.done() is until_end
            task.cancel()
            producer.close()

    run_seeded(1, scene())
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.count(REASON) == (not quiet)
    assert ("`minikafka transactions fence pay`" in found.err) is not quiet
