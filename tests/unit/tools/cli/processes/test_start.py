"""The settings that `start` prints because it does not read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.base.config.cluster import ClusterConfig
from minikafka.tools.cli.processes.start import _tell_unapplied
from minikafka.tools.cluster.local import LocalCluster


def test_start_prints_the_settings_that_it_does_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    made = LocalCluster(3, data="data", config=ClusterConfig(replicates_topics=True))
    launcher = made._launcher()
    launcher.write(launcher.plan(None))
    _tell_unapplied(1, None)
    Path("cluster.toml").write_text("[broker]\nnum.partitions = 6\n")
    before = Path("data/broker-1.toml").read_text()
    _tell_unapplied(1, None)
    change, *kept = capsys.readouterr().err.splitlines()
    assert change.startswith("num.partitions = 6 (was 1): not in effect, `start` does not read")
    assert "minikafka restart 1 applies it" in change
    assert [line.partition(":")[0] for line in kept] == [
        "default.replication.factor = 3",
        "min.insync.replicas = 2",
    ]
    assert Path("data/broker-1.toml").read_text() == before
    _tell_unapplied(1, "data")
    assert capsys.readouterr().err == ""
