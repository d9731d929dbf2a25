"""The units of systemd, also as systemd itself reads them."""

from __future__ import annotations

import math
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from minikafka.tools.cli.generate.systemd import _quoted
from minikafka.tools.cli.main import commands

KEYS = (
    'broker.id = 1\nzookeeper.connect = "h:2181"\nminikafka.cluster.secret = "0123456789abcdef"\n'
)
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


def call(*words: str) -> Result:
    return CliRunner().invoke(commands, ["generate", "systemd", *words])


def broker_file(directory: Path, keys: str) -> str:
    file = directory / "broker.toml"
    file.write_text(f"[broker]\n{KEYS}{keys}\n")
    return str(file)


def settings(unit: str) -> dict[str, str]:
    lines = (line.partition("=") for line in unit.splitlines() if not line.startswith("#"))
    return {key: value for key, sign, value in lines if sign}


def test_unit_of_a_broker_has_its_directories_and_the_time_that_its_stop_may_take(
    tmp_path: Path,
) -> None:
    keys = 'log.dirs = "/disk 1,/disk2"\ncontrolled.shutdown.retry.backoff.ms = 500'
    file = broker_file(tmp_path, keys)
    made = call("--config", file, "--user", "kafka")
    unit = settings(made.stdout)
    assert unit["ExecStart"].endswith(f"minikafka broker --config {file}")
    assert unit["ReadWritePaths"] == '"/disk 1" /disk2 "/disk 1-ledger"'
    assert (unit["User"], unit["Type"]) == ("kafka", "notify")
    assert unit["TimeoutStopSec"] == str(math.ceil(3 * 30 + 2 * 0.5 + 0.1 + 60))
    assert unit["RestartPreventExitStatus"] == "2 130"
    assert "#   install -d -o kafka -g kafka -m 0750 '/disk 1-ledger'" in made.stdout
    assert f"#   chgrp kafka {file} && chmod 0640 {file}" in made.stdout


@pytest.mark.parametrize(
    ("keys", "seconds"),
    [
        ("controlled.shutdown.enable = false", "60"),
        ("controlled.shutdown.max.retries = 1", "91"),
        ("controlled.shutdown.max.retries = 2", "126"),
    ],
)
def test_time_to_stop_follows_from_the_keys_of_controlled_shutdown(
    tmp_path: Path, keys: str, seconds: str
) -> None:
    made = call("--config", broker_file(tmp_path, f'log.dirs = "/d"\n{keys}'))
    assert settings(made.stdout)["TimeoutStopSec"] == seconds


def test_unit_for_kafkas_own_file_lets_the_user_read_the_secret_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.id=1\nzookeeper.connect=h:2181\nlog.dirs=/d\n")
    secret = tmp_path / "minikafka-secret.properties"
    secret.write_text("minikafka.cluster.secret=0123456789abcdef\n")
    assert (
        f"#   chgrp minikafka {secret} && chmod 0640 {secret}" in call("--config", str(file)).stdout
    )


def test_unit_without_a_configuration_file_says_so(tmp_path: Path) -> None:
    made = call("--config", str(tmp_path / "none.toml"))
    assert "none.toml does not exist: the unit is for defaults" in made.stderr
    assert settings(made.stdout)["TimeoutStopSec"] == "161"


def test_relative_log_directory_and_options_of_the_other_server_are_refused(
    tmp_path: Path,
) -> None:
    relative = call("--config", broker_file(tmp_path, 'log.dirs = "data"'))
    assert "log.dirs: data must be absolute for a service" in str(relative.exception)
    assert call("--port", "2181").exit_code == 2


def test_unit_is_written_to_a_file(tmp_path: Path) -> None:
    file = tmp_path / "zookeeper.service"
    file.write_text("old")
    call("zookeeper", "--data", "/d", "--host", "10.0.0.1", "-o", str(file))
    assert settings(file.read_text())["ExecStart"].endswith(
        "minikafka zookeeper --data /d --host 10.0.0.1 --port 2181"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["zookeeper.service"]


def test_words_of_a_command_are_quoted_as_systemd_reads_them() -> None:
    assert _quoted("/a/b") == "/a/b"
    assert _quoted('/a "b"$c%d\\e') == '"/a \\"b\\"$$c%%d\\\\e"'


@needs_systemd
@pytest.mark.parametrize("server", ["broker", "zookeeper"])
def test_systemd_accepts_the_unit_and_finds_little_exposure(tmp_path: Path, server: str) -> None:
    file = tmp_path / f"minikafka-{server}.service"
    call(server, "-o", str(file))
    analyze = ["systemd-analyze"]
    checked = subprocess.run([*analyze, "verify", str(file)], capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")
    limit = ["security", "--offline=true", "--threshold=20", str(file)]
    exposure = subprocess.run([*analyze, *limit], capture_output=True, text=True)
    assert exposure.returncode == 0, exposure.stdout[-500:]
