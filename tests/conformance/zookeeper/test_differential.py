"""Random requests of three sessions get the same replies and events from Apache ZooKeeper and from minikafka's server.

`scripts/zookeeper-differential` runs any number of sequences.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.zookeeper_lock_step import Comparison, bursts
from support.zookeeper_pair import Pair, running_pair
from support.zookeeper_sequences import Sequence

SEQUENCES = 200
FIRST_SEED = 0


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with running_pair(tmp_path) as running:
        yield running


async def test_embedded_server_answers_200_random_sequences_as_apache_zookeeper(
    pair: Pair,
) -> None:
    comparison = Comparison(*pair.ports)

    def compare_all() -> None:
        for seed in range(FIRST_SEED, FIRST_SEED + SEQUENCES):
            difference = comparison.run(seed)
            assert difference is None, f"seed {seed}: {difference}"

    await asyncio.to_thread(compare_all)
    assert comparison.counts.events > 5 * SEQUENCES, "the sequences meet too few watches"


def test_sequences_of_a_seed_differ_only_in_their_root() -> None:
    first, second = (Sequence(7, root).steps() for root in ("/s1", "/s2"))
    assert [step.text for step in first] == [step.text for step in second]
    assert [step.record.replace(b"/s1", b"/s2") for step in first] == [s.record for s in second]
    assert [step for burst in bursts(first) for step in burst] == first
