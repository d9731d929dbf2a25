"""The client lists, describes and aborts transactions, also while coordinators and leaders move."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.clients.stub_transactions import OPEN, StubTransactions

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.client import Client, Outcome
from minikafka.client.administration.transaction_admin import (
    TransactionDescription,
    TransactionListing,
)
from minikafka.kafka.wire import versions
from minikafka.simulation.transport import MemoryTransport

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
DONE = Outcome(ErrorCode.NONE)


@pytest.fixture
async def cluster() -> AsyncIterator[StubTransactions]:
    cluster = StubTransactions(MemoryTransport())
    await cluster.start()
    cluster.create("t", [1, 3])
    yield cluster
    await cluster.close()


async def test_transactions_of_all_brokers_are_listed_in_order(
    cluster: StubTransactions, client: Client
) -> None:
    cluster.transact("pay-2", OPEN, T0)
    cluster.transact("pay-1", OPEN._replace(producer_id=8), T1)
    listed = [
        TransactionListing("pay-1", 2, 8, "Ongoing"),
        TransactionListing("pay-2", 2, 7, "Ongoing"),
    ]
    cluster.failures[versions.LIST_TRANSACTIONS].append(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert await client.transactions.list_transactions() == listed
    assert sorted(cluster.asked(versions.LIST_TRANSACTIONS)) == [1, 1, 2, 2, 3, 3]
    assert await client.transactions.list_transactions(producer_ids=[7]) == listed[1:]
    assert await client.transactions.list_transactions(["Empty"]) == []


async def test_ids_are_described_by_their_coordinator_after_it_moved(
    cluster: StubTransactions, client: Client
) -> None:
    cluster.transact("pay-1", OPEN, T1, T0)
    cluster.failures[versions.DESCRIBE_TRANSACTIONS].append(ErrorCode.NOT_COORDINATOR)
    found = await client.transactions.describe(["pay-1", "none"])
    assert found["pay-1"].found == TransactionDescription(
        "pay-1", 2, 7, 2, "Ongoing", 60_000, 500, (T0, T1)
    )
    assert found["none"].outcome.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert found["none"].found is None


async def test_producers_are_read_from_each_leader_or_from_one_replica(
    cluster: StubTransactions, client: Client
) -> None:
    idle = OPEN._replace(coordinator_epoch=None, start_offset=None)
    cluster.producers = cluster.producers | {T0: [OPEN], T1: [idle]}
    found = await client.transactions.describe_producers([T0, T1])
    assert [result.producers for result in found.values()] == [(OPEN,), (idle,)]
    assert sorted(cluster.asked(versions.DESCRIBE_PRODUCERS)) == [1, 3]
    assert (await client.transactions.describe_producers([T1], 2))[T1].producers == (idle,)
    assert cluster.asked(versions.DESCRIBE_PRODUCERS)[-1] == 2
    gone = (await client.transactions.describe_producers([T1], 9))[T1].outcome
    assert gone == Outcome(ErrorCode.BROKER_NOT_AVAILABLE, "t-1: there is no live broker 9")


async def test_abort_writes_a_marker_at_the_leader_even_after_it_moved(
    cluster: StubTransactions, client: Client
) -> None:
    await client.transactions.describe_producers([T0])
    cluster.lead("t", 0, 3)
    assert await client.transactions.abort(T0, OPEN) == DONE
    assert await client.transactions.abort(T1, OPEN._replace(coordinator_epoch=None)) == DONE
    assert cluster.aborted == [(T0, 7, 2, 4), (T1, 7, 2, 0)]
    assert cluster.asked(versions.WRITE_TXN_MARKERS) == [1, 3, 3]


async def test_refused_abort_names_the_partition_and_the_reason(
    cluster: StubTransactions, client: Client
) -> None:
    cluster.failures[versions.WRITE_TXN_MARKERS].append(ErrorCode.INVALID_PRODUCER_EPOCH)
    outcome = await client.transactions.abort(T0, OPEN)
    assert str(outcome) == "INVALID_PRODUCER_EPOCH: t-0: a newer producer uses the same id"
    assert cluster.aborted == []
