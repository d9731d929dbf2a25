"""Producer ids, unique in the cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.znodes import Znodes

from minikafka.base.errors import BadVersion, NotConnected, OutcomeUnknown
from minikafka.broker.producer_ids import ProducerIds
from minikafka.zk.layout import PRODUCER_ID_BLOCK, decode_producer_ids


def znodes() -> Any:
    nodes = Znodes()
    nodes.nodes[PRODUCER_ID_BLOCK] = (b"", 0)
    return nodes


@pytest.mark.row("R72")
async def test_brokers_that_ask_at_once_never_get_the_same_id() -> None:
    nodes = znodes()
    brokers = [ProducerIds(nodes, broker_id) for broker_id in (1, 2, 3)]
    ids = await asyncio.gather(*(brokers[n % 3].next() for n in range(4500)))
    assert len(set(ids)) == 4500
    assert min(ids) == 0
    _, first, last = decode_producer_ids(nodes.nodes[PRODUCER_ID_BLOCK][0])
    assert (first, last) == (5000, 5999)


async def test_ids_of_a_block_that_was_prepared_need_no_zookeeper() -> None:
    nodes = znodes()
    ids = ProducerIds(nodes, 1)
    await ids.prepare()
    await ids.prepare()
    nodes.failures = [NotConnected()] * 3
    assert [await ids.next() for _ in range(3)] == [0, 1, 2]


async def test_a_block_that_could_not_be_prepared_is_claimed_when_it_is_needed() -> None:
    nodes = znodes()
    ids = ProducerIds(nodes, 1)
    nodes.failures = [NotConnected()]
    await ids.prepare()
    assert await ids.next() == 0


@pytest.mark.row("R72")
async def test_a_block_that_another_broker_claimed_meanwhile_is_left_to_it() -> None:
    nodes = znodes()
    first, second = ProducerIds(nodes, 1), ProducerIds(nodes, 2)
    assert await first.next() == 0

    async def get_then_lose(path: str) -> Any:
        answer = await Znodes.get(nodes, path)
        nodes.get = lambda path: Znodes.get(nodes, path)
        nodes.failures.append(BadVersion(path))
        return answer

    nodes.get = get_then_lose
    assert await second.next() == 1000


async def test_a_block_whose_claim_has_no_answer_is_not_used() -> None:
    nodes = znodes()
    ids = ProducerIds(nodes, 1)
    nodes.failures = []

    async def set_and_lose(*args: Any) -> Any:
        await Znodes.set(nodes, *args)
        nodes.set = lambda *args: Znodes.set(nodes, *args)
        raise OutcomeUnknown

    nodes.set = set_and_lose
    with pytest.raises(OutcomeUnknown):
        await ids.next()
    assert await ids.next() == 1000


async def test_a_block_that_cannot_be_read_is_told_to_producers_only() -> None:
    nodes = znodes()
    nodes.nodes[PRODUCER_ID_BLOCK] = (b"no block", 0)
    ids = ProducerIds(nodes, 1)
    await ids.prepare()
    with pytest.raises(ValueError, match="JSON"):
        await ids.next()
