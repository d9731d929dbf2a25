"""The names that the shell offers, and the parameters for which it offers them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.shell_completion import ShellComplete
from support.commands.scripted_admin import ScriptedAdmin

from minikafka.base.model import TopicPartition
from minikafka.client.administration.group_admin import GroupListing
from minikafka.tools.cli.arguments import completion
from minikafka.tools.cli.main import commands
from minikafka.tools.cli.terminal import command_group
from minikafka.tools.cluster.directory import BrokerRecord, ClusterDirectory, ClusterRecord


class Groups:
    """The groups of the scripted cluster."""

    names = ("shop", "sales", "x; rm -rf /", "line\nfeed", "$(id)")

    async def list_groups(self) -> list[GroupListing]:
        return [GroupListing(name, "consumer", "Stable") for name in self.names]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the data directory of a cluster with topics and groups."""
    topics = {"events": 11, "errors": 1, "__consumer_offsets": 1}
    scripted = ScriptedAdmin(
        {TopicPartition(topic, n): (1,) for topic, count in topics.items() for n in range(count)}
    )
    scripted.groups = Groups()  # type: ignore[attr-defined]
    monkeypatch.setattr("minikafka.client.Client", lambda servers, **options: scripted)
    brokers = tuple(BrokerRecord(id_, id_, id_ + 10) for id_ in (1, 2, 12))
    ClusterDirectory(tmp_path).write(ClusterRecord(brokers, "host:1"))
    return tmp_path


def offered(line: str) -> list[str]:
    """Return what the shell offers for the last word of a command line."""
    *words, last = line.split(" ")
    shell = ShellComplete(commands, {}, "minikafka", "_MINIKAFKA_COMPLETE")
    return [item.value for item in shell.get_completions(words, last)]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("consume -b h:1 ", ["errors", "events"]),
        ("consume -b h:1 ev", ["events"]),
        ("consume -b h:1 __", ["__consumer_offsets"]),
        ("topics describe -b h:1 events er", ["errors"]),
        ("configs set -b h:1 --topic ev", ["events"]),
        ("consume -b h:1 -g s", ["shop", "sales"]),
        ("groups describe -b h:1 ", ["sales", "shop"]),
        ("why --group sh", []),
        ("reassign -b h:1 --generate --topics events,er", ["events,errors"]),
        ("elect -b h:1 events-1", ["events-1", "events-10"]),
        ("produce -b h:1 ev", ["events"]),
    ],
)
def test_names_of_the_cluster_on_the_command_line_are_offered(
    cluster: Path, line: str, names: list[str]
) -> None:
    assert sorted(offered(line)) == sorted(names)


def test_words_after_the_topic_of_produce_are_completed_as_files(cluster: Path) -> None:
    shell = ShellComplete(commands, {}, "minikafka", "_MINIKAFKA_COMPLETE")
    for words in (["produce", "events"], ["produce", "-t", "events"]):
        [item] = shell.get_completions(words, "in")
        assert (item.type, item.value) == ("file", "in")


def test_broker_ids_are_offered_with_and_without_a_running_broker(cluster: Path) -> None:
    assert offered(f"kill --data {cluster} ") == ["1", "2", "12", "zookeeper"]
    assert offered(f"plan kill-broker --data {cluster} 1") == ["1", "12"]
    assert offered(f"configs describe --data {cluster} --broker 1") == ["1", "12"]
    assert offered(f"stop --data {cluster} z") == ["zookeeper"]


@pytest.mark.parametrize("failure", ["no cluster", "error", "hangs"])
def test_nothing_is_offered_or_printed_when_the_cluster_cannot_be_read(
    cluster: Path,
    failure: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(completion, "TIMEOUT_S", 0.05)
    monkeypatch.chdir(cluster)

    async def describe() -> None:
        await SimpleClock.forever()

    if failure == "error":
        monkeypatch.setattr("minikafka.client.Client", lambda servers: 1 / 0)
    elif failure == "hangs":
        monkeypatch.setattr(ScriptedAdmin, "describe", lambda *_: describe())
    line = "consume " if failure == "no cluster" else "consume -b h:1 "
    assert offered(line) == []
    assert offered("kill --data /dev/null 1") == []
    assert capfd.readouterr() == ("", "")


class SimpleClock:
    @staticmethod
    async def forever() -> None:
        import asyncio

        await asyncio.Event().wait()


def test_commands_are_offered_without_the_import_of_their_modules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command_group, "importlib", SimpleNamespace())
    assert offered("st") == ["start", "stop", "status"]
    assert "--version" in offered("--")


def parameters(command: click.Command, path: str) -> Iterator[tuple[str, click.Parameter]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from parameters(below, f"{path} {name}")
    for parameter in command.params:
        yield path, parameter


def test_every_parameter_for_a_topic_group_or_broker_offers_names() -> None:
    named = re.compile(r"\b(TOPIC|GROUP|TOPIC-PARTITION|A,B|ID)\b")
    missing = [
        f"{path} {parameter.name}"
        for path, parameter in parameters(commands, "minikafka")
        if named.search(parameter.metavar or parameter.name.upper() if parameter.name else "")
        if parameter._custom_shell_complete is None
        if type(parameter.type).shell_complete is click.ParamType.shell_complete
    ]
    assert missing == []
