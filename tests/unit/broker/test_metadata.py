"""The metadata of the cluster that the controller last sent."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from support.brokers.cold import broker, state

from minikafka.base.model import LEADER_DURING_DELETE, UpdateMetadataRequest
from minikafka.broker.metadata import MetadataCache
from minikafka.simulation.clocks import LoopClock


def request(*states, live=(1, 2), ids=()) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(1, 1, 1, states, tuple(broker(n) for n in live), tuple(ids))


def test_update_replaces_changed_partitions_and_all_live_brokers() -> None:
    cache = MetadataCache(LoopClock())
    cache.update(request(state("a", 0, (1, 2)), state("a", 1, (2, 1)), ids=[("a", b"i" * 16)]))
    before = cache.snapshot
    cache.update(request(state("a", 1, (2, 1), leader=1), live=(1,)))
    assert cache.topics["a"][0].leader == 1
    assert cache.topics["a"][1].leader == 1
    assert before.topics["a"][1].leader == 2
    assert cache.topic_ids == {"a": b"i" * 16}
    assert cache.snapshot.topic_names == {b"i" * 16: "a"}
    assert (cache.is_alive(1), cache.is_alive(2)) == (True, False)
    assert cache.version == before.version + 1


def test_suspect_is_not_alive_but_stays_visible_to_clients() -> None:
    cache = MetadataCache(LoopClock())
    cache.update(replace(request(), suspects=(2,)))
    assert (cache.is_alive(1), cache.is_alive(2)) == (True, False)
    assert set(cache.brokers) == {1, 2}
    cache.update(request())
    assert cache.is_alive(2)


def test_topic_that_is_being_deleted_is_removed_from_the_metadata() -> None:
    cache = MetadataCache(LoopClock())
    cache.update(request(state("a", 0, (1,)), state("b", 0, (1,)), ids=[("a", b"i" * 16)]))
    cache.update(request(state("a", 0, (1,), leader=LEADER_DURING_DELETE)))
    assert set(cache.topics) == {"b"}
    assert cache.topic_ids == {}


def test_update_of_a_recreated_topic_removes_the_partitions_of_the_former_topic() -> None:
    cache = MetadataCache(LoopClock())
    cache.update(request(state("a", 0, (1,)), state("a", 1, (1,)), ids=[("a", b"i" * 16)]))
    cache.update(request(state("a", 0, (1,)), ids=[("a", b"j" * 16)]))
    assert set(cache.topics["a"]) == {0}


async def test_wait_until_returns_true_when_an_update_makes_the_condition_true() -> None:
    cache = MetadataCache(LoopClock())
    waiting = asyncio.ensure_future(cache.wait_until(lambda: "b" in cache.topics, 60_000))
    await asyncio.sleep(0)
    cache.update(request(state("a", 0, (1,))))
    await asyncio.sleep(0)
    assert not waiting.done()
    cache.update(request(state("b", 0, (1,))))
    assert await waiting


async def test_wait_until_returns_false_when_the_condition_does_not_become_true() -> None:
    cache = MetadataCache(LoopClock())
    assert not await cache.wait_until(lambda: False, 1)
    assert not await cache.wait_until(lambda: False, 0)
    assert await cache.wait_until(lambda: True, 0)


def test_update_keeps_the_encoded_metadata_of_topics_that_it_does_not_contain() -> None:
    cache = MetadataCache(LoopClock())
    cache.update(request(state("a", 0, (1,)), state("b", 0, (1,)), ids=[("a", b"i" * 16)]))
    cache.snapshot.encoded.update({(9, "a", 0): b"A", (9, "b", 0): b"B"})
    cache.update(request(state("b", 0, (1, 2))))
    assert cache.snapshot.encoded == {(9, "a", 0): b"A"}
    cache.update(request(live=(1,)))
    assert cache.snapshot.encoded == {}


def test_update_without_partitions_copies_no_topics() -> None:
    cache = MetadataCache(LoopClock())
    cache.update(request(state("a", 0, (1,)), ids=[("a", b"i" * 16)]))
    before = cache.snapshot
    cache.update(request(ids=[("a", b"i" * 16)]))
    assert cache.snapshot.topics is before.topics
    assert cache.snapshot.topic_names is before.topic_names
    cache.update(request(ids=[("a", b"j" * 16)]))
    assert cache.topic_ids == {"a": b"j" * 16}
    assert cache.snapshot.topic_names == {b"j" * 16: "a"}
