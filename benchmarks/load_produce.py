"""Measures produce throughput and latency with acks=all and three replicas, compared with a minimal reference.

The reference is the floor (`floor.py`). The cluster and the floor run in turn with the same load: the same generator,
batch size and number of requests in flight. Runs are short and of equal volume. With more than about 2 GB of dirty
pages, a run would measure the kernel's write-back.
"""

from __future__ import annotations

import statistics
from typing import NamedTuple

from benchmarks import closed_loop, floor, kafka
from benchmarks.closed_loop import Load, Result

WARM_UP_SHARE = 20
TOPIC_BYTES = 512 << 20
"""Size at which a topic is deleted, and the next round uses a new topic."""


class Scenario(NamedTuple):
    """The parameters of a produce load.

    `size`: bytes of a batch; each batch has one record. `floor`: True if the load also runs on the minimal log in
    `floor.py`, for comparison.
    """

    name: str
    size: int
    in_flight: int
    total: int
    partitions: int = 1
    version: int = 7
    floor: bool = True


SCENARIOS = (
    Scenario("259 B, 1 in flight", 259, 1, 10_000),
    Scenario("259 B, 64 in flight", 259, 64, 100_000),
    Scenario("259 B, 64 in flight, v9", 259, 64, 100_000, version=9),
    Scenario("16 KiB, 1 in flight", 16_384, 1, 5_000),
    Scenario("16 KiB, 32 in flight", 16_384, 32, 20_000),
    Scenario("16 KiB, 32 in flight, v9", 16_384, 32, 20_000, version=9),
    Scenario("16 KiB, 16 per leader, 6 partitions", 16_384, 16, 20_000, partitions=6, floor=False),
    Scenario("128 KiB, 8 in flight", 131_072, 8, 3_000),
    Scenario("900 KB, 4 in flight", 900_000, 4, 400),
)


class Measured(NamedTuple):
    """The results of all rounds of one scenario, for the cluster and for the floor."""

    scenario: Scenario
    results: list[Result]
    floors: list[Result]

    @property
    def ratio(self) -> float | None:
        """The median rate of the cluster divided by the median rate of the floor; None if the floor was not run."""
        if not self.floors:
            return None
        return statistics.median(item.rate for item in self.results) / statistics.median(
            item.rate for item in self.floors
        )


async def measure(
    scenario: Scenario, bootstrap: tuple[str, int], floor_port: int, rounds: int
) -> Measured:
    """Run the rounds of a scenario, in turn on the cluster and on the floor (`floor.py`).

    Each topic begins with a warm-up of the cluster and of the floor. A topic that holds about `TOPIC_BYTES` is
    deleted and replaced, so that a run never stores more than a few GB at a time.
    """
    measured = Measured(scenario, [], [])
    stored = scenario.size * scenario.total
    per_topic = max(TOPIC_BYTES // stored, 1)
    while (left := rounds - len(measured.results)) > 0:
        async with kafka.new_topic(bootstrap, scenario.partitions, stored) as (topic, leaders):
            loads = kafka.produce_loads(
                leaders,
                topic,
                scenario.size,
                version=scenario.version,
                in_flight=scenario.in_flight,
                total=scenario.total,
            )
            await _measure(measured, loads, floor_port, min(left, per_topic))
    return measured


async def _measure(
    measured: Measured, kafka_loads: list[Load], floor_port: int, rounds: int
) -> None:
    scenario = measured.scenario
    floor_request = floor.request(scenario.size)
    floor_load = Load(
        "127.0.0.1", floor_port, [floor_request], floor.ANSWER, scenario.in_flight, scenario.total
    )
    await closed_loop.run(_warm_up(kafka_loads))
    await closed_loop.run(_warm_up([floor_load]))
    for _ in range(rounds):
        measured.results.append(await closed_loop.run(kafka_loads))
        if scenario.floor:
            measured.floors.append(await closed_loop.run([floor_load]))


def _warm_up(loads: list[Load]) -> list[Load]:
    return [load._replace(total=load.total // WARM_UP_SHARE + 1) for load in loads]
