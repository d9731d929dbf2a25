"""The two coordination modes under the same faults and the same work, in turn: `python -m benchmarks.two_designs`.

Each measurement starts a cluster of real processes with its own ZooKeeper, once per *variant*: the controller with and
without fast failover, and the leaders alone. `--json FILE` appends the figures to FILE, and
`python -m benchmarks.two_designs_page FILE` writes docs/two-designs.md from the last line of FILE.

- deaths: the time from a SIGKILL to the next acknowledged write of every partition (`benchmarks/failover.py`).
- ten: ten brokers that lead one partition each are killed at the same moment.
- cost: what the death of one leader costs ZooKeeper, and how many brokers act.
- work: creation, reassignment and deletion of 1, 100 and 1,000 partitions: time, and cost in ZooKeeper.
- start: the start of all brokers with 1,000 partitions of three replicas.
- pauses: a paused ZooKeeper, a slow ZooKeeper, and the death of a leader during each.
- idle: what ZooKeeper does for a cluster that nobody uses, with few and with many partitions.
- watches: 1,000 topics of three partitions on three brokers, the example of the page.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import uvloop

from benchmarks import failover, lifetime, peer, report
from benchmarks.closed_loop import LoadError
from benchmarks.controller_cluster import View
from minikafka import LocalCluster
from minikafka.base.config.cluster import ClusterConfig
from minikafka.base.model import TopicPartition
from minikafka.broker.ledger import reader
from minikafka.client import Client, NewTopic
from minikafka.zookeeper.processes.child import four_letter_word

HOST: Final = "127.0.0.1"
SESSION_MS: Final = 6_000
VARIANTS: Final[Mapping[str, Mapping[str, object]]] = {
    "controller": {},
    "controller, no fast failover": {"minikafka.fast.failover.enable": False},
    "leaders": {"minikafka.coordination": "leaders"},
}
MODES: Final = ("controller", "leaders")
SIZES: Final = (1, 100, 1_000)
WAIT_SECONDS: Final = 180.0
QUIET_SECONDS: Final = 0.5
IDLE_SIZES: Final = (99, 999)
IDLE_SECONDS: Final = 20.0
PAUSE_SECONDS: Final = 3.0
SLOW: Final = (0.045, 0.005)
"""Seconds that a slow ZooKeeper is stopped, and runs, in turn."""


class Cost(NamedTuple):
    """What ZooKeeper did in a period, from its own metrics (`mntr`), and the watches at its end (`wchs`)."""

    reads: int
    writes: int
    bytes_in: int
    bytes_out: int
    notifications: int
    """Watch events sent, one per watching session."""
    watches: int

    def since(self, before: Cost) -> Cost:
        """Return the difference to an earlier state; the number of watches is that of the later state."""
        counts = [now - then for now, then in zip(self, before, strict=True)]
        return Cost(*counts)._replace(watches=self.watches)


async def cost_of(cluster: LocalCluster) -> Cost:
    """Return what the cluster's ZooKeeper has done since its start."""
    address = cluster.zookeeper.partition("/")[0]
    host, _, port = address.rpartition(":")
    text = await four_letter_word(host, int(port), "mntr", 10_000)
    rows = dict(line.split("\t", 1) for line in text.splitlines() if "\t" in line)
    watches = await four_letter_word(host, int(port), "wchs", 10_000)
    kinds = ("created", "deleted", "changed", "children")
    return Cost(
        int(rows["zk_cnt_readlatency"]),
        int(rows["zk_cnt_updatelatency"]),
        int(rows["zk_bytes_received_count"]),
        int(rows["zk_response_bytes"]),
        sum(int(rows[f"zk_sum_node_{kind}_watch_count"]) for kind in kinds),
        int(watches.rpartition("Total watches:")[2].strip() or 0),
    )


@asynccontextmanager
async def running(variant: str, brokers: int, **keys: object) -> AsyncIterator[LocalCluster]:
    """Run a cluster with Kafka's defaults, apart from the session timeout and the keys of the variant."""
    settings = {"zookeeper.session.timeout.ms": SESSION_MS, **VARIANTS[variant], **keys}
    config = ClusterConfig(port=0, broker=settings)
    async with LocalCluster(brokers, config=config) as cluster:
        yield cluster


def addresses(cluster: LocalCluster) -> dict[int, tuple[str, int]]:
    """Return the address of each broker."""
    return {broker.id: (HOST, broker.port) for broker in cluster.record.brokers}


async def eventually(holds: Callable[[], Awaitable[bool]], complaint: str) -> None:
    """Poll until the condition holds. Raises LoadError after `WAIT_SECONDS`."""
    await peer.wait_until(holds, WAIT_SECONDS, complaint)


async def create(cluster: LocalCluster, topic: str, replicas: Sequence[Sequence[int]]) -> None:
    """Create a topic with these replicas, and wait until every broker shows it with leaders and full ISRs."""
    async with Client(cluster.bootstrap) as client:
        new = NewTopic(topic, assignment=dict(enumerate(replicas)))
        await client.create_topics(new)
    await whole(cluster, topic, [len(each) for each in replicas])


async def whole(cluster: LocalCluster, topic: str, sizes: Sequence[int]) -> None:
    """Wait until every running broker shows a leader and a full ISR for every partition of a topic."""
    alive = [id_ for id_ in addresses(cluster) if cluster.process(id_) is not None]
    views = [View(*addresses(cluster)[id_], topic) for id_ in alive]

    async def holds() -> bool:
        for view in views:
            found = await peer.in_thread(view.look)
            if len(found) != len(sizes) or any(leader < 0 for leader, _ in found):
                return False
            if sorted(isr for _, isr in found) != sorted(sizes):
                return False
        return True

    await eventually(holds, f"{topic} did not have leaders and full ISRs")
    for view in views:
        view.session.socket.close()


# Deaths.


async def deaths(variant: str, kills: int) -> dict[str, Any]:
    """Kill one broker after the other, and return the seconds to the next writes by kind of the killed broker."""
    cluster = peer.Minikafka({**peer.KEYS, **VARIANTS[variant]})
    async with peer.started([cluster], {cluster.name: {}}):
        run = failover.Run(cluster, 6)
        await run.start()
        for number in range(kills):
            await run.kill(controller=number % 2 == 1)
        records = await run.verify()
    found: dict[str, list[float]] = {}
    for kill in run.kills:
        found.setdefault(kill.kind, []).append(round(kill.seconds, 4))
    return {"seconds": found, "records": records}


async def ten(variant: str, rounds: int) -> dict[str, Any]:
    """Kill ten brokers at once, each of which leads one of ten partitions. Return the seconds to all ten writes."""
    seconds = []
    for _ in range(rounds):
        async with running(variant, 12) as cluster:
            replicas = [(leader, 11, 12) for leader in range(1, 11)]
            await create(cluster, "ten", replicas)
            staying = [addresses(cluster)[id_] for id_ in (11, 12)]
            writers = [failover.Writer("ten", number, staying) for number in range(10)]
            for writer in writers:
                writer.may_write.set()
                writer.start()
            await asyncio.sleep(failover.CALM_SECONDS)
            moment = time.monotonic()
            events = [writer.expect(moment) for writer in writers]
            for leader in range(1, 11):
                process = cluster.process(leader)
                assert process is not None
                os.kill(process.pid, signal.SIGKILL)
            for event in events:
                if not await peer.in_thread(partial(event.wait, failover.ANSWER_SECONDS)):
                    raise LoadError("a partition was not written after ten deaths")
            seconds.append(round(max(writer.first_ack for writer in writers) - moment, 4))
            for writer in writers:
                await peer.in_thread(writer.end)
    return {"seconds": seconds}


# What a death costs.


async def cost(variant: str) -> dict[str, Any]:
    """Kill one of six brokers, which leads one partition, and count what ZooKeeper and the brokers do."""
    async with running(variant, 6) as cluster:
        await create(cluster, "cost", [(1, 2, 3)])
        await create(cluster, "others", [(2, 4, 5), (4, 5, 6), (6, 5, 2)])
        await quiet(cluster)
        before, lines = await cost_of(cluster), ledger_sizes(cluster)
        await cluster.kill(1)
        await led_by_another(cluster, "cost", 1)
        # The session ends later where the leadership moves early, and its end has a cost too.
        await asyncio.sleep(SESSION_MS / 1_000 + QUIET_SECONDS)
        await quiet(cluster)
        spent = (await cost_of(cluster)).since(before)
        acting = [id_ for id_, count in ledger_sizes(cluster).items() if count > lines[id_]]
    return {**spent._asdict(), "brokers that act": len([id_ for id_ in acting if id_ != 1])}


async def led_by_another(cluster: LocalCluster, topic: str, dead: int) -> None:
    """Wait until every running broker names a living leader of the topic's only partition."""
    views = [View(*address, topic) for id_, address in addresses(cluster).items() if id_ != dead]

    async def holds() -> bool:
        found = [await peer.in_thread(view.look) for view in views]
        return all(len(each) == 1 and each[0][0] not in (-1, dead) for each in found)

    await eventually(holds, f"{topic} has no new leader")


async def quiet(cluster: LocalCluster) -> None:
    """Wait until ZooKeeper has accepted no write for half a second."""
    last = -1
    while (writes := (await cost_of(cluster)).writes) != last:
        last = writes
        await asyncio.sleep(QUIET_SECONDS)


def ledger_sizes(cluster: LocalCluster) -> dict[int, int]:
    """Return the number of lines in the ledger of each broker."""
    directories = {
        broker.id: cluster.directory.broker_ledger(broker.id) for broker in cluster.record.brokers
    }
    return {id_: len(reader.read(path)) for id_, path in directories.items()}


# Work.


async def work(variant: str) -> dict[str, Any]:
    """Create, reassign and delete topics of each size. Return seconds and cost, by operation and size."""
    found: dict[str, Any] = {}
    async with running(variant, 4) as cluster:
        for size in SIZES:
            topic = f"work-{size}"
            steps: list[tuple[str, Callable[[], Awaitable[None]]]] = [
                ("create", partial(create, cluster, topic, [(1, 2, 3)] * size)),
                ("reassign", partial(reassign, cluster, topic, size)),
                ("delete", partial(delete, cluster, topic)),
            ]
            for name, step in steps:
                await quiet(cluster)
                before, begin = await cost_of(cluster), time.monotonic()
                await step()
                seconds = round(time.monotonic() - begin, 3)
                await quiet(cluster)
                spent = (await cost_of(cluster)).since(before)
                found.setdefault(name, {})[str(size)] = {"seconds": seconds, **spent._asdict()}
                note(f"{variant}: {name} {size}: {seconds} s")
    return found


async def reassign(cluster: LocalCluster, topic: str, size: int) -> None:
    """Move every partition to other brokers, and wait until no reassignment is in progress."""
    async with Client(cluster.bootstrap) as client:
        targets = {TopicPartition(topic, number): (2, 3, 4) for number in range(size)}
        outcomes = await client.admin.alter_reassignments(targets)
        if wrong := [outcome for outcome in outcomes.values() if not outcome.ok]:
            raise LoadError(f"{topic} was not reassigned: {wrong[0]}")

        async def ended() -> bool:
            return not await client.admin.list_reassignments()

        await eventually(ended, f"the reassignment of {topic} did not end")
    await whole(cluster, topic, [3] * size)


async def delete(cluster: LocalCluster, topic: str) -> None:
    """Delete a topic, and wait until no broker has a directory of it."""
    async with Client(cluster.bootstrap) as client:
        await client.delete_topics(topic)
    folders = [cluster.directory.broker_data(broker.id) for broker in cluster.record.brokers]

    async def gone() -> bool:
        return not any(
            path.name.rpartition("-")[0] == topic for folder in folders for path in folder.iterdir()
        )

    await eventually(gone, f"replicas of {topic} are left")


# Starts, pauses and watches.


async def start(variant: str, partitions: int) -> dict[str, Any]:
    """Stop all brokers, start them again, and return the seconds until every partition is whole."""
    async with running(variant, 3) as cluster:
        await create(cluster, "start", [(1, 2, 3)] * partitions)
        await quiet(cluster)
        before, begin = await cost_of(cluster), time.monotonic()
        await cluster.restart_together([1, 2, 3])
        await whole(cluster, "start", [3] * partitions)
        seconds = round(time.monotonic() - begin, 3)
        spent = (await cost_of(cluster)).since(before)
    return {"seconds": seconds, **spent._asdict()}


async def pauses(variant: str) -> dict[str, Any]:
    """Return the longest time without a write while ZooKeeper is paused or slow, with and without a death."""
    found = {}
    for kind, disturb in (("paused", paused), ("slow", slow)):
        for dies in (False, True):
            async with running(variant, 3) as cluster:
                await create(cluster, "pauses", [(1, 2, 3)])
                name = f"ZooKeeper is {kind}" + (", the leader dies" if dies else "")
                found[name] = await longest_gap(cluster, disturb, dies)
                note(f"{variant}: {name}: {found[name]} s")
    return found


async def longest_gap(
    cluster: LocalCluster, disturb: Callable[[int], Coroutine[Any, Any, None]], dies: bool
) -> float:
    """Return the longest time in seconds between two acknowledged writes during a disturbance of ZooKeeper."""
    writer = failover.Writer("pauses", 0, list(addresses(cluster).values()))
    writer.may_write.set()
    writer.start()
    await asyncio.sleep(failover.CALM_SECONDS)
    process = cluster.zookeeper_process()
    assert process is not None
    disturbance = asyncio.create_task(disturb(process.pid))
    await asyncio.sleep(0.1)
    if dies:
        await cluster.kill(1)
    begin, last, longest = time.monotonic(), len(writer.acked), 0.0
    moved = begin
    while not disturbance.done() or time.monotonic() - moved > 0.2:
        await asyncio.sleep(0.002)
        now = time.monotonic()
        if len(writer.acked) > last:
            longest, last, moved = max(longest, now - moved), len(writer.acked), now
        if now - begin > WAIT_SECONDS:
            raise LoadError("no write was acknowledged after the disturbance")
    await disturbance
    await peer.in_thread(writer.end)
    return round(longest, 3)


async def paused(pid: int) -> None:
    """Stop a process for some seconds, less than a session lasts."""
    os.kill(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(PAUSE_SECONDS)
    finally:
        os.kill(pid, signal.SIGCONT)


async def slow(pid: int) -> None:
    """Let a process run only a tenth of the time, for longer than a session lasts."""
    off, on = SLOW
    end = time.monotonic() + SESSION_MS / 1_000 + PAUSE_SECONDS
    try:
        while time.monotonic() < end:
            os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(off)
            os.kill(pid, signal.SIGCONT)
            await asyncio.sleep(on)
    finally:
        os.kill(pid, signal.SIGCONT)


async def watches(variant: str, topics: int) -> dict[str, Any]:
    """Create topics of three partitions on three brokers, and count the watches of the cluster."""
    async with running(variant, 3) as cluster:
        before = (await cost_of(cluster)).watches
        async with Client(cluster.bootstrap) as client:
            for first in range(0, topics, 50):
                names = range(first, min(first + 50, topics))
                await client.create_topics(
                    *(NewTopic(f"watched-{number}", 3, 3) for number in names)
                )
        await whole(cluster, f"watched-{topics - 1}", [3] * 3)
        await quiet(cluster)
        after = (await cost_of(cluster)).watches
    return {"topics": topics, "without topics": before, "with topics": after}


# Rest.


async def idle(variant: str) -> dict[str, Any]:
    """Return the requests per broker and second of a cluster that nobody uses, by number of partitions."""
    found: dict[str, Any] = {}
    for size in IDLE_SIZES:
        async with running(variant, 3) as cluster:
            await create(cluster, "idle", [(1, 2, 3), (2, 3, 1), (3, 1, 2)] * (size // 3))
            # The brokers read all metadata once after the creation.
            await asyncio.sleep(IDLE_SECONDS)
            before, began = await cost_of(cluster), time.monotonic()
            await asyncio.sleep(IDLE_SECONDS)
            spent, seconds = (await cost_of(cluster)).since(before), time.monotonic() - began
            rates = {key: getattr(spent, key) / seconds / 3 for key in ("reads", "bytes_out")}
            found[str(size)] = {key: round(rate, 1) for key, rate in rates.items()}
    return found


def note(text: str) -> None:
    """Show the progress on a terminal or in a log."""
    print(text, file=sys.stderr, flush=True)


Part = Callable[[str, argparse.Namespace], Awaitable[dict[str, Any]]]
PARTS: Final[dict[str, tuple[Sequence[str], Part]]] = {
    "deaths": (tuple(VARIANTS), lambda variant, given: deaths(variant, given.kills)),
    "ten": (tuple(VARIANTS), lambda variant, given: ten(variant, given.rounds)),
    "cost": (tuple(VARIANTS), lambda variant, _: cost(variant)),
    "work": (MODES, lambda variant, _: work(variant)),
    "start": (MODES, lambda variant, given: start(variant, given.partitions)),
    "pauses": (tuple(VARIANTS), lambda variant, _: pauses(variant)),
    "idle": (MODES, lambda variant, _: idle(variant)),
    "watches": (MODES, lambda variant, given: watches(variant, given.topics)),
}


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.two_designs", description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append", help="run only this part")
    parser.add_argument("--kills", type=int, default=12, help="kills of each variant (default: 12)")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of `ten` (default: 2)")
    parser.add_argument(
        "--partitions", type=int, default=1_000, help="partitions of `start` (default: 1000)"
    )
    parser.add_argument(
        "--topics", type=int, default=1_000, help="topics of `watches` (default: 1000)"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="append a line of results to FILE"
    )
    lifetime.live(compare(parser.parse_args()), uvloop.run)


async def compare(given: argparse.Namespace) -> None:
    """Run all parts, print their figures, and append them to the file `given.json`."""
    machine = report.machine()
    print(machine, flush=True)
    figures: dict[str, dict[str, Any]] = {}
    for name, (variants, part) in PARTS.items():
        if given.only and name not in given.only:
            continue
        for variant in variants:
            with suppress(BrokenPipeError):
                note(f"{name}: {variant}")
            figures.setdefault(name, {})[variant] = await part(variant, given)
            print(f"{name}: {variant}: {figures[name][variant]}", flush=True)
    if given.json is not None:
        report.append(given.json, {"machine": machine, "two designs": figures})


if __name__ == "__main__":
    main()
