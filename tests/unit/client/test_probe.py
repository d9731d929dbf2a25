"""The probe of a cluster sends requests to every broker and every leader."""

from __future__ import annotations

import pytest
from support.clients.stub_cluster import StubCluster

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.client import Client, Outcome
from minikafka.client.administration import probe

DONE = Outcome(ErrorCode.NONE)


async def test_probe_reports_brokers_and_partition_leaders_that_do_not_answer(
    cluster: StubCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "TIMEOUT_MS", 100)
    cluster.create("t", [1, 2, 3, -1])
    cluster.create("u", [1])
    async with Client(cluster.bootstrap, transport=cluster.transport) as client:
        info, topics = await client.admin.describe()
        await cluster.kill(2)
        cluster.silent = {3}
        cluster.lead("u", 0, 3)  # `topics` still has the former leader
        brokers, partitions = await client.admin.probe(info, topics, info.brokers)
    assert brokers.pop(2).code is ErrorCode.NETWORK_EXCEPTION
    assert brokers == {1: DONE, 3: Outcome(ErrorCode.REQUEST_TIMED_OUT, "no answer within 0.1 s")}
    assert {tp: outcome.code for tp, outcome in partitions.items()} == {
        TopicPartition("t", 0): ErrorCode.NONE,
        TopicPartition("t", 1): ErrorCode.NETWORK_EXCEPTION,
        TopicPartition("t", 2): ErrorCode.REQUEST_TIMED_OUT,
        TopicPartition("u", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
