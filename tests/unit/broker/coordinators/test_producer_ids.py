"""Producer ids, unique in the cluster."""

from __future__ import annotations

import asyncio

import pytest

from minikafka.base.errors import NotConnected, OutcomeUnknown
from minikafka.broker.coordinators.transaction_host import ProducerIds
from minikafka.simulation.zookeeper import ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.zookeeper.nodes.ids import claim_producer_ids
from minikafka.zookeeper.nodes.layout import PRODUCER_ID_BLOCK, decode_producer_ids


@pytest.fixture
def ensemble() -> ZooKeeperInMemory:
    ensemble = ZooKeeperInMemory()
    ensemble.put(PRODUCER_ID_BLOCK)
    return ensemble


def session_of(ensemble: ZooKeeperInMemory) -> InMemoryClient:
    return InMemoryClient(ensemble)


def producer_ids(session: InMemoryClient, broker_id: int) -> ProducerIds:
    return ProducerIds(lambda: claim_producer_ids(session, broker_id, 1000))


@pytest.mark.row("R72")
async def test_concurrent_brokers_never_get_the_same_producer_id(
    ensemble: ZooKeeperInMemory,
) -> None:
    brokers = [producer_ids(session_of(ensemble), broker_id) for broker_id in (1, 2, 3)]
    ids = await asyncio.gather(*(brokers[n % 3].next() for n in range(4500)))
    assert len(set(ids)) == 4500
    assert min(ids) == 0
    _, first, last = decode_producer_ids(ensemble.nodes[PRODUCER_ID_BLOCK].data)
    assert (first, last) == (5000, 5999)


async def test_ids_of_a_prepared_block_need_no_zookeeper(ensemble: ZooKeeperInMemory) -> None:
    session = session_of(ensemble)
    ids = producer_ids(session, 1)
    await ids.prepare()
    await ids.prepare()
    session.failures = [NotConnected()] * 3
    assert [await ids.next() for _ in range(3)] == [0, 1, 2]


async def test_producer_id_block_is_claimed_on_demand_when_prepare_failed(
    ensemble: ZooKeeperInMemory,
) -> None:
    session = session_of(ensemble)
    ids = producer_ids(session, 1)
    session.failures = [NotConnected()]
    await ids.prepare()
    assert await ids.next() == 0


@pytest.mark.row("R72")
async def test_concurrent_claims_of_two_brokers_get_successive_blocks_of_ids(
    ensemble: ZooKeeperInMemory,
) -> None:
    sessions = [session_of(ensemble), session_of(ensemble)]
    for session in sessions:
        await session.attach()
    first, second = (producer_ids(session, n) for n, session in enumerate(sessions, start=1))
    assert await asyncio.gather(first.next(), second.next()) == [0, 1000]


async def test_producer_id_block_is_skipped_when_the_response_to_its_claim_was_lost(
    ensemble: ZooKeeperInMemory,
) -> None:
    session = session_of(ensemble)
    ids = producer_ids(session, 1)
    session.faults = ["unanswered"]
    with pytest.raises(OutcomeUnknown):
        await ids.next()
    assert await ids.next() == 1000


async def test_unreadable_producer_id_block_raises_on_demand_but_not_in_prepare(
    ensemble: ZooKeeperInMemory,
) -> None:
    ensemble.put(PRODUCER_ID_BLOCK, b"no block")
    ids = producer_ids(session_of(ensemble), 1)
    await ids.prepare()
    with pytest.raises(ValueError, match="JSON"):
        await ids.next()
