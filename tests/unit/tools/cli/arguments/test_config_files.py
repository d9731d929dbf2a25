"""The TOML files that `--config` names."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.base.errors import ClusterLost, ConfigError
from minikafka.tools.cli.arguments.config_files import errors_name_file, load_cluster_config


def test_cluster_config_is_read_from_current_directory_without_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.toml").write_text("[cluster]\nbrokers = 5\n")
    assert load_cluster_config(None).brokers == 5


def test_config_error_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[cluster]\nbroker = 3\n")
    with pytest.raises(ConfigError, match=r"mine\.toml: .*brokers"):
        load_cluster_config(str(file))


def test_error_about_lost_data_does_not_blame_the_file(tmp_path: Path) -> None:
    with pytest.raises(ClusterLost, match=r"^ZooKeeper has"), errors_name_file(tmp_path / "b.toml"):
        raise ClusterLost("ZooKeeper has no node /cluster/id")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[broker]\nnum.partitons = 3\n", "line 2, column 1: unknown key num.partitons"),
        ("[broker]\n\n  num.partitions = 0\n", "line 3, column 3: num.partitions must be"),
        ("[cluster]\nport 3\n", r"at line 2, column 6"),
        ("[cluster]\nbrokers = 3\n[broker.0]\n", r"line 3, column 1: \[broker.0\] names no"),
        ("[broker]\nlog.dirs = 'x'\n", "line 2, column 1: log.dirs is set by the cluster"),
    ],
)
def test_config_error_names_the_line_of_the_mistake(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        load_cluster_config(str(file))
