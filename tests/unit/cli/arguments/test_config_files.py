"""The TOML files that `--config` names."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.base.errors import ConfigError
from minikafka.cli.arguments.config_files import load_cluster_config


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
