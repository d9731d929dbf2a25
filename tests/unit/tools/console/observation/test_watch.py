"""The observation of a cluster while somebody looks, with brokers that answer, hang and return."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from minikafka.runtime.clock import SystemClock
from minikafka.tools.cluster.observation.access import BrokerAccess
from minikafka.tools.cluster.observation.sights import Known, Sights, ZooKeeperSight
from minikafka.tools.console.observation import watch as watching
from minikafka.tools.console.observation.frames import (
    frame,
    ledger_records,
    seen_and_unseen,
    snapshot,
)
from minikafka.tools.console.observation.members import (
    DOWN,
    RUNNING,
    BrokerMember,
    CommandOptions,
)
from minikafka.tools.console.observation.watch import ClusterWatch, Viewer


def answer(partitions: int, end: int = 5) -> dict[str, Any]:
    rows = [
        {
            "topic": "t",
            "partition": number,
            "role": "leader",
            "opening": None,
            "leader_epoch": 1,
            "replicas": [1],
            "isr": [1],
            "high_watermark": end,
            "log_end_offset": end,
            "log_start_offset": 0,
            "last_stable_offset": end,
            "size": 1,
        }
        for number in range(partitions)
    ]
    return {
        "replicas": rows,
        "controller_epoch": 3,
        "is_controller": True,
        "session_state": "connected",
        "metrics": {"MessagesInPerSec": 0, "BytesInPerSec": 0, "BytesOutPerSec": 0},
    }


class Brokers:
    """Brokers 1 and 2 that can be told what to do. `hanging`: those that never answer."""

    def __init__(self) -> None:
        self.options = CommandOptions((), ("--data", "d"), ("--data", "d"))
        self.user = None
        self.states = {1: RUNNING, 2: RUNNING}
        self.answers = {1: answer(3), 2: answer(0) | {"is_controller": False}}
        self.hanging: set[int] = set()
        self.asked = 0
        self.positions: list[str] = []
        self.is_gone = False
        self.lines: list[dict[str, Any]] = []

    async def members(self) -> Sequence[BrokerMember]:
        if self.is_gone:
            raise FileNotFoundError(2, "no such file", "cluster.json")
        return [
            BrokerMember(id_, "127.0.0.1", id_, None, state) for id_, state in self.states.items()
        ]

    async def ask(self, broker: int, question: str, argument: dict[str, Any]) -> Mapping[str, Any]:
        self.asked += 1
        self.positions.append(argument["since"])
        if broker in self.hanging:
            await asyncio.sleep(3600)
        return self.answers[broker]

    async def sights(self, answers: Known) -> Sights:
        return Sights(ZooKeeperSight("127.0.0.1:2181", None), {})

    def has_faults(self) -> bool:
        return False

    def access(self) -> BrokerAccess:
        raise NotImplementedError

    @asynccontextmanager
    async def sources(self) -> AsyncIterator[Any]:
        yield None

    async def ledger_lines(self) -> list[dict[str, Any]]:
        lines, self.lines = self.lines, []
        return lines

    async def close(self) -> None: ...


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    for name in ("FRAME_MS", "MEMBERS_MS", "PROBLEMS_MS"):
        monkeypatch.setattr(watching, name, 5)
    monkeypatch.setattr(watching, "IDLE_MS", 40)
    return Brokers()


@pytest.fixture
async def watch(brokers: Brokers) -> AsyncIterator[ClusterWatch]:
    watch = ClusterWatch(brokers, SystemClock())
    yield watch
    await watch.close()


@pytest.fixture
def viewer(watch: ClusterWatch) -> Viewer:
    viewer = Viewer()
    watch.add(viewer)
    return viewer


async def until(viewer: Viewer, condition: Any) -> None:
    async with asyncio.timeout(5):
        while not condition():
            viewer.changed.clear()
            await viewer.changed.wait()


async def test_broker_that_hangs_does_not_delay_the_others(
    brokers: Brokers, watch: ClusterWatch, viewer: Viewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "READY_MS", 50)
    brokers.hanging = {2}
    await watch.ready()
    assert set(snapshot(watch, viewer)["partitions"]) == {"t-0", "t-1", "t-2"}
    brokers.answers[1] = answer(3, end=6)
    await until(viewer, lambda: viewer.partitions)
    assert [row[5] for row in frame(watch, viewer)["partitions"].values()] == [6, 6, 6]


async def test_frame_has_only_what_has_changed(
    brokers: Brokers, watch: ClusterWatch, viewer: Viewer
) -> None:
    await watch.ready()
    snapshot(watch, viewer)
    changed = answer(3)
    changed["replicas"][1]["high_watermark"] = 4
    brokers.answers[1] = changed
    await until(viewer, lambda: viewer.partitions)
    found = frame(watch, viewer)
    assert set(found["partitions"]) == {"t-1"}
    assert found["gone"] == []
    viewer.brokers.clear()
    viewer.has_cluster = viewer.has_problems = False
    assert frame(watch, viewer) == {}


async def test_broker_is_asked_for_what_has_changed_since_its_last_answer(
    brokers: Brokers, watch: ClusterWatch, viewer: Viewer
) -> None:
    brokers.states = {1: RUNNING}
    brokers.answers[1] = answer(3) | {"position": "7-1", "is_whole": True, "gone": []}
    await watch.ready()
    snapshot(watch, viewer)
    changed = answer(1, end=6)
    brokers.answers[1] = changed | {"position": "7-2", "is_whole": False, "gone": [["t", 2]]}
    await until(viewer, lambda: viewer.partitions)
    found = frame(watch, viewer)
    assert (set(found["partitions"]), found["gone"]) == ({"t-0"}, ["t-2"])
    assert set(watch.grid.rows) == {"t-0", "t-1"}
    assert len(watch.answers[1]["replicas"]) == 2
    assert brokers.positions[:2] == ["", "7-1"]

    brokers.states = {1: DOWN}  # the next run of the broker does not know the position
    await until(viewer, lambda: len(viewer.partitions) == 2)
    brokers.positions.clear()
    brokers.states = {1: RUNNING}
    async with asyncio.timeout(5):
        while not brokers.positions:  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.002)
    assert brokers.positions[0] == ""


async def test_viewer_that_does_not_read_has_each_partition_once(
    brokers: Brokers, watch: ClusterWatch, viewer: Viewer
) -> None:
    await watch.ready()
    for end in range(6, 10):
        brokers.answers[1] = answer(3, end)
        async with asyncio.timeout(5):
            while watch.grid.rows["t-0"][5] != end:  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.002)
    assert viewer.partitions == {"t-0", "t-1", "t-2"}
    assert frame(watch, viewer)["partitions"]["t-0"][5] == 9


async def test_viewer_of_a_topic_gets_no_other(
    brokers: Brokers, watch: ClusterWatch, viewer: Viewer
) -> None:
    other = Viewer(["u"])
    watch.add(other)
    await watch.ready()
    assert snapshot(watch, other)["partitions"] == {}
    assert not other.partitions


async def test_part_that_does_not_answer_is_unseen_until_it_answers(
    brokers: Brokers, watch: ClusterWatch, viewer: Viewer
) -> None:
    await watch.ready()
    assert snapshot(watch, viewer)["unseen"] == []
    for _ in range(2):
        brokers.states[2] = DOWN
        await until(viewer, lambda: viewer.unseen)
        [(name, data)] = seen_and_unseen(watch, viewer)
        assert (name, data) == ("unseen", {"what": "broker 2", "reason": "it has no process"})
        brokers.states[2] = RUNNING
        await until(viewer, lambda: viewer.unseen)
        assert seen_and_unseen(watch, viewer) == [("seen", {"what": "broker 2"})]


async def test_broker_that_is_a_member_again_is_observed_again(
    brokers: Brokers, watch: ClusterWatch, viewer: Viewer
) -> None:
    def leaders() -> set[int | None]:
        return {row[0] for row in watch.grid.rows.values()}

    await watch.ready()
    for _ in range(2):
        del brokers.states[1]
        await until(viewer, lambda: 1 not in watch.brokers and leaders() == {None})
        brokers.states[1] = RUNNING
        await until(viewer, lambda: leaders() == {1})


def ledger(*numbers: int) -> list[dict[str, Any]]:
    fields = {"kind": "broker", "cause": "", "fact": "started", "broker": 1}
    return [{"time": number, "n": number, **fields} for number in numbers]


async def test_viewer_gets_the_last_lines_of_the_ledger_and_then_each_new_one_once(
    brokers: Brokers, watch: ClusterWatch, viewer: Viewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "LEDGER_FIRST", 2)
    brokers.lines = ledger(1, 2, 3, 4)
    await watch.ready()
    await until(viewer, lambda: watch.ledger_end == 2)
    found = ledger_records(watch, viewer)
    assert [(number, record["n"]) for number, record in found] == [(0, 3), (1, 4)]
    brokers.lines = ledger(5, 6, 7)
    await until(viewer, lambda: watch.ledger_end == 5)
    assert [record["n"] for _, record in ledger_records(watch, viewer)] == [5, 6, 7]
    assert ledger_records(watch, viewer) == []
    other = Viewer()
    watch.add(other)
    assert [record["n"] for _, record in ledger_records(watch, other)] == [6, 7]


async def test_cluster_whose_files_are_gone_is_unseen(
    brokers: Brokers, watch: ClusterWatch, viewer: Viewer
) -> None:
    await watch.ready()
    brokers.is_gone = True
    await until(viewer, lambda: "the cluster" in watch.unseen)
    assert "cluster.json" in watch.unseen["the cluster"]


async def test_no_broker_is_asked_while_nobody_looks(
    brokers: Brokers, watch: ClusterWatch, viewer: Viewer
) -> None:
    for _ in range(2):
        watch.add(viewer)
        await watch.ready()
        assert brokers.asked
        watch.remove(viewer)
        async with asyncio.timeout(5):
            while watch._run is not None:  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.01)
        asked = brokers.asked
        await asyncio.sleep(0.05)
        assert brokers.asked == asked
        brokers.asked = 0
