"""Which cluster a command means."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.base.errors import ConfigError
from minikafka.cli.target import bootstrap_servers, data_directory, load_config
from minikafka.cluster import ClusterError


def test_without_a_file_it_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert data_directory(None) == "data"
    assert data_directory("elsewhere") == "elsewhere"


def test_a_cluster_toml_in_the_current_directory_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.toml").write_text('[cluster]\ndata = "here"\nbrokers = 5\n')
    assert data_directory(None) == "here"
    assert load_config(None).brokers == 5


def test_an_error_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[cluster]\nbroker = 3\n")
    with pytest.raises(ConfigError, match=r"mine\.toml: .*brokers"):
        load_config(str(file))


def test_given_brokers_are_asked_and_none_are_made_up(tmp_path: Path) -> None:
    assert bootstrap_servers("h:1", None) == "h:1"
    with pytest.raises(ClusterError, match="there is no cluster in"):
        bootstrap_servers(None, str(tmp_path))
