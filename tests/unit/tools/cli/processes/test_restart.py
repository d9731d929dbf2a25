"""The command `restart`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from minikafka.base.config import BrokerConfig
from minikafka.base.config.cluster import ClusterConfig
from minikafka.tools.cli.main import commands
from minikafka.tools.cluster import ClusterError, LocalCluster
from minikafka.tools.cluster import local as module


class Recorded(LocalCluster):
    """A cluster without processes: it records in `done` which brokers are restarted or waited for, in order.

    `late`: the number of the wait that fails, counted from 1; 0 if no wait fails.
    """

    done: list[Any]
    late = 0
    away: tuple[int, ...] = ()

    async def state(self) -> Any:
        return SimpleNamespace(controller=1)

    async def restart(self, broker_id: int) -> None:
        self.done.append(broker_id)

    async def restart_together(self, brokers: Sequence[int]) -> None:
        self.done.append(tuple(brokers))

    def process(self, broker_id: int) -> Any:
        return None if broker_id in self.away else object()

    async def wait_until_in_sync(self, timeout_ms: int = 60_000) -> None:
        self.done.append(f"in sync within {timeout_ms}")
        if len([wait for wait in self.done if str(wait).startswith("in sync")]) == self.late:
            raise ClusterError("t-0 did not get all replicas in sync")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Recorded]:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    launcher = LocalCluster(3, data="data", config=ClusterConfig())._launcher()
    launcher.write(launcher.plan(None))
    monkeypatch.setattr(module, "LocalCluster", Recorded)
    Recorded.done = []
    monkeypatch.setattr(Recorded, "late", 0)
    return Recorded


def call(*arguments: str) -> Result:
    return CliRunner().invoke(commands, ["restart", *arguments])


def file_of(broker: int) -> BrokerConfig:
    return BrokerConfig.parse(Path(f"data/broker-{broker}.toml").read_text())


def test_rolling_restart_waits_for_sync_and_restarts_the_controller_last(
    cluster: type[Recorded],
) -> None:
    done = call("--rolling")
    wait = "in sync within 60000"
    assert cluster.done == [wait, 2, wait, 3, wait, 1, wait]
    assert done.stderr.splitlines() == [
        "broker 2 was restarted (1 of 3)",
        "broker 3 was restarted (2 of 3)",
        "broker 1 was restarted (3 of 3)",
        "all replicas are in sync",
    ]


def test_rolling_restart_does_not_call_replicas_on_a_dead_broker_in_sync(
    cluster: type[Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "away", (3,))
    done = call("1", "--rolling")
    last = "all replicas on running brokers are in sync; not running: broker 3"
    assert done.stderr.splitlines()[-1] == last


def test_rolling_restart_fails_before_the_timeout_when_replicas_stay_out_of_sync(
    cluster: type[Recorded],
) -> None:
    cluster.late = 2
    done = call("1", "2", "--rolling", "--timeout", "5")
    assert isinstance(done.exception, ClusterError)
    waited, restarted, waited_again = cluster.done
    assert restarted == 2
    for wait in (waited, waited_again):
        assert int(wait.removeprefix("in sync within ")) <= 4_000, (
            "the error comes before the time-out"
        )


@pytest.mark.parametrize("options", [["--rolling"], []])
def test_interrupted_restart_names_the_brokers_that_it_leaves_stopped(
    cluster: type[Recorded], monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    async def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster, "restart", interrupted)
    monkeypatch.setattr(cluster, "restart_together", interrupted)
    monkeypatch.setattr(cluster, "away", (2,))
    done = call("2", *options)
    assert done.stderr.startswith("broker 2 is stopped; to start it: minikafka start 2\n")


def test_brokers_restart_together_when_option_rolling_is_not_given(cluster: type[Recorded]) -> None:
    assert call("3", "1", "3").stderr == "restarted: 3, 1\n"
    assert call().exit_code == 0
    assert cluster.done == [(3, 1), (1, 2, 3)]


def test_restarted_broker_gets_the_settings_of_the_edited_cluster_toml(
    cluster: type[Recorded],
) -> None:
    before = file_of(1)
    Path("cluster.toml").write_text("[broker]\nnum.partitions = 7\n[cluster]\nbrokers = 5\n")
    assert call("2").exit_code == 0
    assert (file_of(2).num_partitions, file_of(1)) == (7, before)
    Path("cluster.toml").write_text("[broker]\nreplica.lag.time.max.ms = 1\n")
    refused = call("1")
    assert "cluster.toml: line 2, column 1: replica.fetch.wait.max.ms" in str(refused.exception)
    assert (file_of(1), cluster.done) == (before, [(2,)])


def test_unknown_broker_is_refused_before_anything_stops(cluster: type[Recorded]) -> None:
    assert "there is no broker 9" in str(call("1", "9").exception)
    assert cluster.done == []
