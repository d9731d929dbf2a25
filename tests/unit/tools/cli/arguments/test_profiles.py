"""The profile file, and what chooses the cluster of a command: options, environment, profile, cluster.toml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from support.commands.scripted_admin import ScriptedAdmin

from minikafka.base.errors import MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.tools.cli.arguments import completion, profiles
from minikafka.tools.cli.main import commands

TEXT = """\
[clusters.prod]
bootstrap = "prod:9093"
security.protocol = "SASL_SSL"
ssl.truststore.type = "PEM"
ssl.truststore.location = "ca.pem"
sasl.mechanism = "PLAIN"
"sasl.jaas.config" = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="hidden";'

[clusters.test]
bootstrap = "test:9092,test:9093"
"""


class Laptop:
    """The profile file, and the connections that commands make: servers, and whether they log in."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "minikafka" / "config.toml"
        self.file.parent.mkdir()
        self.connected: list[tuple[str, bool]] = []

    def write(self, text: str, mode: int = 0o600) -> None:
        self.file.write_text(text)
        self.file.chmod(mode)

    def client(self, servers: str, **options: Any) -> ScriptedAdmin:
        self.connected.append((servers, "connector" in options))
        return ScriptedAdmin({TopicPartition("t", 0): (1,)})

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(commands, words)


@pytest.fixture
def laptop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laptop:
    made = Laptop(tmp_path)
    made.write(TEXT)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("MINIKAFKA_DATA", raising=False)
    monkeypatch.delenv("MINIKAFKA_CLUSTER", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("minikafka.client.Client", made.client)
    monkeypatch.setattr(
        "minikafka.client.security.connector_from", lambda config, *_: config.security_protocol
    )
    profiles.read_profile.cache_clear()
    return made


@pytest.mark.parametrize(
    ("variable", "words", "connected"),
    [
        ("", ["--cluster", "prod", "topics", "list"], ("prod:9093", True)),
        ("prod", ["topics", "list"], ("prod:9093", True)),
        ("prod", ["--cluster", "test", "topics", "list"], ("test:9092,test:9093", False)),
        # The passwords of a profile that only the environment names are not sent to another address.
        ("prod", ["topics", "list", "--bootstrap", "h:1"], ("h:1", False)),
        ("", ["--cluster", "prod", "topics", "list", "--bootstrap", "h:1"], ("h:1", True)),
    ],
)
def test_cluster_is_chosen_by_options_before_the_environment(
    laptop: Laptop,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    words: list[str],
    connected: tuple[str, bool],
) -> None:
    (laptop.file.parent.parent / "cluster.toml").write_text('[cluster]\ndata = "none"\n')
    if variable:
        monkeypatch.setenv("MINIKAFKA_CLUSTER", variable)
    done = laptop.run(*words)
    assert (done.exit_code, done.stdout) == (0, "t\n"), done.exception
    assert laptop.connected == [connected]


def test_data_directory_of_an_option_comes_before_a_profile_of_the_environment(
    laptop: Laptop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINIKAFKA_CLUSTER", "prod")
    done = laptop.run("topics", "list", "--data", "nowhere")
    assert str(done.exception).startswith("there is no cluster in /")
    assert str(done.exception).endswith("/nowhere")
    assert laptop.connected == []


@pytest.mark.parametrize(
    ("environment", "words", "reason"),
    [
        ({"MINIKAFKA_CLUSTER": "prod", "MINIKAFKA_DATA": "d"}, ["topics", "list"], "unset one"),
        ({}, ["--cluster", "prod", "topics", "list", "--data", "d"], "give one of them"),
        ({}, ["--cluster", "prod", "up"], "`commands up` starts processes of the machine"),
        ({"MINIKAFKA_CLUSTER": "prod"}, ["kill", "2"], "but MINIKAFKA_CLUSTER names a cluster"),
        ({}, ["logs", "--bootstrap", "h:1"], "but --bootstrap names a cluster elsewhere"),
        ({}, ["--cluster", "prod", "zookeeper"], "`minikafka zookeeper` runs on this machine"),
    ],
)
def test_contradiction_or_command_of_another_machine_is_a_usage_error(
    laptop: Laptop,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    words: list[str],
    reason: str,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    done = laptop.run(*words)
    assert (done.exit_code, reason in done.stderr) == (2, True), done.stderr


def test_local_command_with_a_data_directory_ignores_a_profile_of_the_environment(
    laptop: Laptop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINIKAFKA_CLUSTER", "prod")
    done = laptop.run("kill", "2", "--data", "nowhere")
    assert str(done.exception).startswith("there is no cluster in /")
    assert str(done.exception).endswith("/nowhere")


@pytest.mark.parametrize(
    ("text", "code", "reason"),
    [
        (TEXT, 2, "config.toml: it has no cluster prd, but prod, test; did you mean prod?"),
        ("", 2, "it has no clusters: write a table [clusters.prd]"),
        ("[clusters.prd]\n", 1, "line 1, column 1: clusters.prd needs the key bootstrap"),
        ("[clusters.prd]\nbootstrap = 'h'\n", 1, "line 2, column 1: clusters.prd.bootstrap: "),
        (
            "[clusters.prd]\nbootstrap = ['h:1']\n",
            1,
            "line 2, column 1: clusters.prd.bootstrap mus",
        ),
        (
            "[clusters.prd]\nbootstrap = 'h:1'\nbootstap = 1\n",
            1,
            "line 3, column 1: clusters.prd.bootstap is unknown; did you mean bootstrap?",
        ),
        (
            "[clusters.prd]\nbootstrap = 'h:1'\nsasl.mechanisn = 'PLAIN'\n",
            1,
            "unknown key sasl.mechanisn; did you mean sasl.mechanism?",
        ),
        (
            "[clusters.prd]\nbootstrap = 'h:1'\ncommand-config = 'f'\nsasl.mechanism = 'PLAIN'\n",
            1,
            "line 4, column 1: clusters.prd.sasl.mechanism must be in the file of command-config",
        ),
        (
            "[clusters.prd]\nbootstrap = 'h:1'\nsecurity.protocol = 'SASL'\n",
            1,
            "line 3: security.protocol must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, got",
        ),
        ("[clusters.prd]\nbootstrap = \n", 1, "invalid TOML: Invalid value (at line 2, column 13)"),
        ("[cluster.prd]\n", 1, "line 1: unknown key cluster; the only tables are [cl"),
    ],
)
def test_wrong_profile_is_refused_with_file_and_line(
    laptop: Laptop, text: str, code: int, reason: str
) -> None:
    laptop.write(text)
    done = laptop.run("--cluster", "prd", "topics", "list")
    assert isinstance(done.exception, MinikafkaError)
    assert str(done.exception).count(str(laptop.file)) == 1
    assert reason in str(done.exception)
    assert done.exception.exit_code == code


def test_missing_profile_file_is_named(laptop: Laptop) -> None:
    laptop.file.unlink()
    done = laptop.run("--cluster", "prod", "topics", "list")
    assert str(done.exception).startswith(f"there is no file {laptop.file}")


@pytest.mark.parametrize(("mode", "is_warned"), [(0o600, False), (0o640, True), (0o604, True)])
def test_file_with_a_password_that_others_can_read_gets_a_warning(
    laptop: Laptop, mode: int, is_warned: bool
) -> None:
    laptop.write(TEXT, mode)
    done = laptop.run("--cluster", "prod", "topics", "list")
    assert ("warning: " in done.stderr) == is_warned
    assert "hidden" not in done.output
    profiles.read_profile.cache_clear()
    assert "warning" not in laptop.run("--cluster", "test", "topics", "list").stderr


def test_paths_are_relative_to_the_folder_of_the_profile_file(laptop: Laptop) -> None:
    laptop.write(TEXT + "command-config = 'test.properties'\n")
    entries = {one.name: one.value for one in profiles.read_profile("prod").entries}
    assert entries["ssl.truststore.location"] == str(laptop.file.parent / "ca.pem")
    assert profiles.read_profile("test").command_config == str(
        laptop.file.parent / "test.properties"
    )


def test_names_of_the_profiles_are_completed(laptop: Laptop) -> None:
    context = click.Context(commands)
    option = commands.params[0]
    found = completion.clusters(context, option, "pr")
    assert [item.value for item in found] == ["prod"]
    laptop.write("[")
    assert completion.clusters(context, option, "") == []
