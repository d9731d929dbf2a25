"""The console of ledgers: what it answers from them, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from minikafka.broker.ledger.writer import file_name
from minikafka.runtime.clock import SystemClock
from minikafka.tools.console.context import Asked
from minikafka.tools.console.errors import RequestRefused
from minikafka.tools.console.replaying import replay_site
from minikafka.tools.console.replaying.replay_site import LedgerDirectories, ReplaySite


def line(broker: int, time: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"time": time, "broker": broker, "n": time, "kind": kind, "cause": "", **fields}


def isr(time: int, leader: int, epoch: int, *members: int) -> dict[str, Any]:
    return line(
        leader,
        time,
        "isr",
        topic="t",
        partition=0,
        change="shrink",
        before=[1, 2],
        isr=list(members),
        leader_epoch=epoch,
        expected=1,
        actual=2,
        zxid=time,
        outcome="ok",
        error="",
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    ledgers = {
        1: [line(1, 100, "broker", fact="started"), isr(200, 1, 1, 1, 2), isr(300, 1, 1, 1)],
        2: [line(2, 110, "broker", fact="started"), isr(400, 2, 2, 2)],
    }
    for broker, lines in ledgers.items():
        ledger = tmp_path / f"broker-{broker}-ledger"
        ledger.mkdir()
        (ledger / file_name(1)).write_text("".join(json.dumps(one) + "\n" for one in lines))
    return tmp_path


@pytest.fixture
def site(folder: Path) -> ReplaySite:
    return ReplaySite(LedgerDirectories(folder), SystemClock())


async def get(site: ReplaySite, path: str, at: int | None = None, **parts: str) -> Any:
    route = next(one for one in site.routes if one.path == path)
    return await route.view(Asked(parts, {} if at is None else {"at": str(at)}))


async def snapshot(site: ReplaySite, **query: str) -> tuple[dict[str, Any], list[int]]:
    stream = site.streams["/api/stream"](Asked({}, query))
    first = await anext(stream)
    lines = [(await anext(stream)).data["time"] for _ in range(first.data["time_ms"] // 100 + 1)]
    await stream.aclose()
    return first.data, lines


async def test_snapshot_shows_the_chosen_time_and_the_lines_before_it(site: ReplaySite) -> None:
    now, lines = await snapshot(site)
    assert (now["live"], now["from_ms"], now["to_ms"], now["time_ms"]) == (False, 100, 400, 400)
    assert now["partitions"]["t-0"][:4] == [2, 2, [], [2]]
    assert lines == [100, 110, 200, 300, 400]
    before, lines = await snapshot(site, at="200")
    assert before["partitions"]["t-0"][:4] == [1, 1, [], [1, 2]]
    assert lines == [100, 110, 200]
    assert "offsets" in before["unseen"][0]["reason"]


async def test_partition_has_its_history_and_its_state_at_the_chosen_time(site: ReplaySite) -> None:
    path = "/api/partition/{topic}/{partition}"
    found = await get(site, path, 250, topic="t", partition="0")
    assert (found["leader"], found["isr"]) == (1, [1, 2])
    assert [one["leader"] for one in found["states"]] == [1, 1, 2]
    with pytest.raises(RequestRefused, match="there is no partition u-0"):
        await get(site, path, topic="u", partition="0")


async def test_timeline_and_topics_come_from_the_ledgers(site: ReplaySite) -> None:
    timeline = await get(site, "/api/timeline")
    assert (timeline["from_ms"], timeline["to_ms"]) == (100, 400)
    assert [400, "leader", "t-0"] in timeline["marks"]
    [topic] = await get(site, "/api/topics")
    assert (topic["topic"], topic["partitions"], topic["bytes"]) == ("t", 1, None)
    assert await get(site, "/api/topics", 150) == []


@pytest.mark.parametrize(
    "path", ["/api/why/{kind}/{name:.*}", "/api/records/{topic}", "/api/actions/{verb}"]
)
async def test_what_needs_a_running_cluster_is_refused(site: ReplaySite, path: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        await get(site, path)
    assert refused.value.status == 409
    assert not any(one["available"] for one in await get(site, "/api/actions"))


def test_folder_of_one_ledger_is_played_too(folder: Path) -> None:
    assert LedgerDirectories(folder / "broker-1-ledger").read()[-1]["time"] == 300


def test_folder_without_ledgers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestRefused, match="has no ledgers"):
        LedgerDirectories(tmp_path).read()


async def test_replay_says_that_older_lines_are_missing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_site, "READ_BYTES", 300)
    cut = ReplaySite(LedgerDirectories(folder), SystemClock())
    found = (await anext(cut.streams["/api/stream"](Asked({})))).data
    assert [one["reason"] for one in found["unseen"]][-1] == "older lines were left out"
