"""The configuration of logrotate, with the real program where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from minikafka.tools.cli.main import commands
from minikafka.tools.cluster.directory import BrokerRecord, ClusterDirectory, ClusterRecord

PROGRAM = shutil.which("logrotate") or shutil.which("/usr/sbin/logrotate")


@pytest.fixture
def directory(tmp_path: Path) -> ClusterDirectory:
    made = ClusterDirectory(tmp_path / "da ta")
    made.logs.mkdir(parents=True)
    made.write(ClusterRecord((BrokerRecord(1, 9092, 1),), "127.0.0.1:1"))
    return made


def generated(directory: ClusterDirectory) -> str:
    words = ["generate", "logrotate", "--data", str(directory.path)]
    return CliRunner().invoke(commands, words, catch_exceptions=False).stdout


def test_configuration_names_the_logs_and_their_owner(directory: ClusterDirectory) -> None:
    text = generated(directory)
    assert f'"{directory.logs}/*.log" {{' in text
    assert f"su {directory.logs.owner()} {directory.logs.group()}" in text


def test_path_that_logrotate_would_misread_is_refused(tmp_path: Path) -> None:
    made = ClusterDirectory(tmp_path / "a*")
    made.logs.mkdir(parents=True)
    made.write(ClusterRecord((BrokerRecord(1, 9092, 1),), "127.0.0.1:1"))
    words = ["generate", "logrotate", "--data", str(made.path)]
    assert "logrotate reads" in str(CliRunner().invoke(commands, words).exception)


def test_cluster_elsewhere_is_refused(directory: ClusterDirectory) -> None:
    words = ["generate", "logrotate", "--bootstrap", "elsewhere:9092"]
    refused = CliRunner().invoke(commands, words)
    assert refused.exit_code == 2
    assert "run it on the machine of the broker, with --data DIR" in refused.stderr


@pytest.mark.skipif(PROGRAM is None, reason="logrotate is not installed")
def test_logrotate_rotates_a_log_to_which_a_process_goes_on_appending(
    directory: ClusterDirectory, tmp_path: Path
) -> None:
    rules = tmp_path / "minikafka"
    rules.write_text(generated(directory))
    rules.chmod(0o644)
    log = directory.logs / "broker-1.log"
    with log.open("ab") as output:  # as the launcher opens it
        output.write(b"before\n")
        output.flush()
        command = [str(PROGRAM), "--force", "--state", str(tmp_path / "state"), str(rules)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        output.write(b"after\n")
    assert log.read_bytes() == b"after\n"
    assert (directory.logs / "broker-1.log.1").read_bytes() == b"before\n"
