"""Every request about transactions, right and wrong, is answered as Apache Kafka 3.9.0 answers it."""

from __future__ import annotations

import pytest
from support.clients.group_client import GroupClient
from support.clusters.transaction_scenes import answers_of, answers_of_kafka

from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded

ONE = {
    "offsets_topic_num_partitions": 2,
    "offsets_topic_replication_factor": 1,
    "transaction_state_log_num_partitions": 2,
    "transaction_state_log_replication_factor": 1,
    "transaction_state_log_min_isr": 1,
}


@pytest.mark.usefixtures("each_mode")
def test_requests_about_transactions_get_the_answers_of_kafka() -> None:
    async def scene() -> list[object]:
        async with MemoryCluster(1, **ONE) as cluster:
            client = GroupClient(cluster, "")
            answers = await answers_of(
                lambda api, version, **values: client.send(9092, api, version, **values)
            )
            client.close()
            return answers

    assert run_seeded(1, scene()) == answers_of_kafka()
