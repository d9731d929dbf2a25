"""Malformed names and data in ZooKeeper: the controller logs each one once, skips it, and remains the controller."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator

import pytest
from support.brokers.controller_bench import (
    ControllerBench,
    create_topic,
    state_of,
    until,
)
from support.brokers.garbage import IDS, NAMES, garbage, places, rows

from minikafka.base.model import TopicPartition
from minikafka.broker.modes.controller.terms.election import EpochNotReadable
from minikafka.zookeeper.nodes import layout

GOOD = TopicPartition("good", 0)


def put_garbage(bench: ControllerBench, seed: int, count: int) -> Iterator[str]:
    chance = random.Random(seed)
    for _ in range(count):
        path = places(chance)
        bench.ensemble.put(path, garbage(chance))
        yield path


@pytest.fixture
async def bench() -> AsyncIterator[ControllerBench]:
    bench = ControllerBench()
    yield bench
    await bench.close()


async def assert_still_controls(bench: ControllerBench, epoch: int) -> None:
    """Assert that the controller, still in controller epoch `epoch`, elects a leader for a new topic."""
    create_topic(bench.ensemble, GOOD.topic, [2, 3])
    await bench.led(2, GOOD)
    assert bench.service.is_active
    assert bench.service.epoch == epoch


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("is_running", [False, True], ids=["at the start", "in a term"])
async def test_malformed_broker_id_is_logged_once_with_its_path_and_skipped(
    bench: ControllerBench, name: str, is_running: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if is_running:
        await bench.elected()
    bench.ensemble.put(f"{layout.BROKER_IDS}/{name}", b"{}")
    if not is_running:
        await bench.elected()
    epoch = bench.service.epoch
    for broker_id in (4, 5):
        bench.register_broker(broker_id)
        await until(lambda broker_id=broker_id: broker_id in bench.channels.open)
    assert set(bench.channels.open) == {1, 2, 3, 4, 5}
    path = f"{layout.BROKER_IDS}/{name}"
    shown = path if path.isascii() else ascii(path)[1:-1]
    assert caplog.text.count(f"{shown} is not readable and is skipped") == 1
    await assert_still_controls(bench, epoch)


async def test_malformed_broker_id_is_logged_again_only_after_its_node_was_deleted(
    bench: ControllerBench, caplog: pytest.LogCaptureFixture
) -> None:
    path = f"{layout.BROKER_IDS}/x"
    bench.ensemble.put(path, b"{}")
    await bench.elected()
    bench.ensemble.delete(layout.CONTROLLER)
    await until(lambda: bench.service.is_active and bench.service.epoch == 2)
    await bench.idle()
    assert caplog.text.count(f"{path} is not readable") == 1, "also in the next term"
    bench.ensemble.delete(path)
    bench.register_broker(4)
    await until(lambda: 4 in bench.channels.open)
    bench.ensemble.put(path, b"{}")
    bench.register_broker(5)
    await until(lambda: 5 in bench.channels.open)
    assert caplog.text.count(f"{path} is not readable") == 2


@pytest.mark.parametrize("name", NAMES)
async def test_invalid_topic_name_in_an_isr_notification_is_skipped(
    bench: ControllerBench, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.elected()
    create_topic(bench.ensemble, "t", [2, 3])
    await bench.led(2, TopicPartition("t", 0))
    path = f"{layout.ISR_CHANGE_PREFIX}0000000007"
    bad, good = {"topic": name, "partition": 0}, {"topic": "t", "partition": 0}
    bench.ensemble.put(path, rows(bad, good))
    await until(lambda: not bench.there(path))
    await bench.idle()
    assert caplog.text.count(f"{path} is not readable and is skipped") == 1
    assert ("read", layout.state_path(TopicPartition("t", 0))) in bench.trace
    await assert_still_controls(bench, bench.service.epoch)


@pytest.mark.parametrize("name", NAMES)
async def test_reassignment_and_election_nodes_are_carried_out_except_for_invalid_topics(
    bench: ControllerBench, name: str
) -> None:
    """Kafka, too, ignores entries of a request for unknown partitions and carries out the other entries."""
    await bench.elected()
    create_topic(bench.ensemble, "t", [2, 3])
    await bench.led(2, TopicPartition("t", 0))
    bad = {"topic": name, "partition": 0, "replicas": [1]}
    good = {"topic": "t", "partition": 0, "replicas": [3, 2]}
    bench.ensemble.put(layout.REASSIGN_PARTITIONS, rows(bad, good))
    await until(lambda: bench.assignment()[0].replicas == (3, 2))
    await until(lambda: not bench.there(layout.REASSIGN_PARTITIONS))
    bench.join(3, 2)
    bench.ensemble.put(layout.PREFERRED_ELECTION, rows(bad, good))
    await bench.led(3, TopicPartition("t", 0))
    await until(lambda: not bench.there(layout.PREFERRED_ELECTION))
    await assert_still_controls(bench, bench.service.epoch)


@pytest.mark.parametrize("seed", range(6))
async def test_controller_keeps_its_term_under_generated_malformed_nodes(
    bench: ControllerBench, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.elected()
    epoch = bench.service.epoch
    for _ in put_garbage(bench, seed, 60):
        for _ in range(seed):
            await asyncio.sleep(0)
    await assert_still_controls(bench, epoch)
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    skipped = [text for text in errors if "is not readable and is skipped" in text]
    assert skipped
    assert all(text.isprintable() for text in skipped)


@pytest.mark.parametrize("seed", range(6))
async def test_controller_is_elected_despite_generated_malformed_nodes(
    bench: ControllerBench, seed: int
) -> None:
    for _ in put_garbage(bench, 100 + seed, 60):
        pass
    await bench.elected()
    await assert_still_controls(bench, 1)


@pytest.mark.parametrize(
    "data", [b"", b"x", b"\xff", b"1_0", b" 7", b"+7", "٣".encode(), b"-1", b"2147483647"]
)
async def test_unreadable_controller_epoch_is_logged_once_until_it_is_repaired(
    bench: ControllerBench, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    bench.ensemble.put(layout.CONTROLLER_EPOCH, data)
    await bench.connect()
    for _ in range(3):
        with pytest.raises(EpochNotReadable):
            await bench.service._election.campaign(bench.zookeeper.generation)
    assert caplog.text.count(f"{layout.CONTROLLER_EPOCH} is not readable") == 1
    assert not bench.there(layout.CONTROLLER)
    bench.ensemble.put(layout.CONTROLLER_EPOCH, b"41")
    won = await bench.service._election.campaign(bench.zookeeper.generation)
    assert won is not None
    assert won.epoch == 42
    assert state_of(bench.ensemble, GOOD) is None
