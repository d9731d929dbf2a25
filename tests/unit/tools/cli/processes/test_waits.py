"""What `up`, `start` and `stop` say that they wait for, at the first run and at later runs."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cli.processes import waits
from minikafka.tools.cli.processes.waits import until_serving, until_zookeeper_serves
from minikafka.tools.cluster.directory import BrokerRecord, ClusterDirectory, ClusterRecord
from minikafka.tools.cluster.local import LocalCluster
from minikafka.tools.cluster.observation.sights import (
    DOWN,
    RUNS,
    BrokerSight,
    ProcessSight,
    Sights,
    ZooKeeperSight,
    look,
)
from minikafka.tools.cluster.processes import identify

THIS = identify(os.getpid())
RUNNING = ProcessSight(RUNS, 5, log="b.log")


def sights(broker: ProcessSight, zookeeper: ProcessSight = RUNNING) -> Sights:
    brokers = {id_: BrokerSight(id_, 1, 2, broker, failure="refused") for id_ in (1, 2)}
    return Sights(ZooKeeperSight("z:1", zookeeper), brokers)


@pytest.fixture
def cluster(tmp_path: Path) -> LocalCluster:
    record = ClusterRecord((BrokerRecord(1, 1, 2), BrokerRecord(2, 3, 4)), "z:1")
    ClusterDirectory(tmp_path).write(record)
    return LocalCluster(data=str(tmp_path), attached=False)


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        (None, "the ports and files of the new cluster"),
        (sights(RUNNING, ProcessSight(DOWN)), "ZooKeeper to start"),
        (
            sights(ProcessSight(DOWN, last_line="broker 1 has stopped", log="b.log")),
            "brokers 1, 2 to serve clients: broker 1 has no process yet",
        ),
        (
            sights(RUNNING),
            "brokers 1, 2 to serve clients: broker 1 starts, and has not written to its log yet (b.log)",
        ),
        (
            sights(replace(RUNNING, last_line="loading logs")),
            "brokers 1, 2 to serve clients: the log of broker 1 ends: loading logs (b.log)",
        ),
    ],
)
async def test_up_says_what_it_waits_for_in_each_phase_of_a_start(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, seen: Sights | None, text: str
) -> None:
    async def found(_: object) -> Sights | None:
        return seen

    monkeypatch.setattr(waits, "_seen", found)
    assert await until_serving(cluster, None)() == text


async def test_start_of_zookeeper_is_no_failure_while_it_has_no_process(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def found(_: object) -> Sights:
        return sights(RUNNING, ProcessSight(DOWN))

    monkeypatch.setattr(waits, "_seen", found)
    assert await until_zookeeper_serves(cluster)() == "ZooKeeper to start"


@pytest.mark.parametrize("line", ["broker 1 has stopped", "minikafka: port 1 is in use"])
async def test_last_line_of_the_run_before_is_not_that_of_a_running_broker(
    tmp_path: Path, line: str
) -> None:
    directory = ClusterDirectory(tmp_path)
    directory.write(ClusterRecord((BrokerRecord(1, 1, 2, THIS),), "127.0.0.1:1"))
    log = directory.logs / "broker-1.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(f"{line}\n")
    seen = await look(directory, SystemClock(), SystemRng())
    assert seen.brokers[1].process.last_line == ""
    log.write_text(f"{line}\nloading logs\n")
    seen = await look(directory, SystemClock(), SystemRng())
    assert seen.brokers[1].process.last_line == "loading logs"
