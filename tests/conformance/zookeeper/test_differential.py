"""Random requests of three sessions get the same replies and events from Apache ZooKeeper and from minikafka's server.

`scripts/zookeeper-differential` runs any number of sequences.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.zookeeper.lock_step import Comparison, Failure, bursts
from support.zookeeper.pair import Pair, running_pair
from support.zookeeper.sequences import Sequence

from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.runtime.tasks import TaskRegistry, ThreadExecutor
from minikafka.runtime.transport import SocketTransport
from minikafka.zookeeper.server.core.watches import Watcher, WatchTable
from minikafka.zookeeper.server.server import ZooKeeperServer

SEQUENCES = 60
FIRST_SEED = 0


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with running_pair(tmp_path) as running:
        yield running


async def test_embedded_server_answers_random_sequences_as_apache_zookeeper(
    pair: Pair,
) -> None:
    comparison = Comparison(*pair.ports)

    def compare_all() -> None:
        for seed in range(FIRST_SEED, FIRST_SEED + SEQUENCES):
            difference = comparison.run(seed)
            assert difference is None, f"seed {seed}: {difference}"

    await asyncio.to_thread(compare_all)
    assert comparison.counts.events > 5 * SEQUENCES, "the sequences meet too few watches"


class Forgetful(WatchTable):
    """A table of watches with a bug: one path has only one watch."""

    def fire(self, path: str) -> dict[Watcher, None]:
        return dict.fromkeys(list(super().fire(path))[:1])


@asynccontextmanager
async def memory_server() -> AsyncIterator[ZooKeeperServer]:
    tasks, failures = TaskRegistry(), list[str]()
    server = ZooKeeperServer(
        None,
        SystemClock(),
        SystemRng(),
        SocketTransport(),
        tasks,
        ThreadExecutor(),
        on_failure=failures.append,
    )
    await server.start("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.close()
        await tasks.close()
    assert failures == []


async def test_comparison_finds_a_server_that_forgets_watches_and_shortens_the_sequence() -> None:
    async with memory_server() as good, memory_server() as forgetful:
        forgetful.state.data_watches = Forgetful()
        comparison = Comparison(good.port, forgetful.port)

        def find() -> Failure:
            for seed in range(SEQUENCES):
                if (difference := comparison.run(seed)) is not None:
                    return comparison.smallest(seed, difference)
            raise AssertionError("no sequence met the bug")

        failure = await asyncio.to_thread(find)
    assert len(failure.steps) < len(Sequence(failure.seed, "/s").steps()) / 4
    assert "Event" in str(failure.difference)


def test_sequences_of_a_seed_differ_only_in_their_root() -> None:
    first, second = (Sequence(7, root).steps() for root in ("/s1", "/s2"))
    assert [step.text for step in first] == [step.text for step in second]
    assert [step.record.replace(b"/s1", b"/s2") for step in first] == [s.record for s in second]
    assert [step for burst in bursts(first) for step in burst] == first
