"""Help, imports, exit codes and errors of the command line."""

from __future__ import annotations

import logging
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click
import pytest

import minikafka
from minikafka.client.network import VERSIONS
from minikafka.kafka.wire import codec
from minikafka.kafka.wire.versions import METADATA
from minikafka.tools.cli import main as entry
from minikafka.tools.cluster.directory import (
    BrokerRecord,
    ClusterDirectory,
    ClusterError,
    ClusterRecord,
)
from minikafka.tools.cluster.processes import identify


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["minikafka", *arguments])
    with pytest.raises(SystemExit) as caught:
        entry.main()
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_help_lists_every_command_with_its_whole_summary(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "--help") == 0
    shown = capsys.readouterr().out
    for name, (_, summary) in entry._COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(summary)}$", shown, re.MULTILINE), name


def test_help_of_every_command_is_ascii() -> None:
    found = commands_below(entry.commands, click.Context(entry.commands))
    texts = [command.get_help(click.Context(command)) for command in found]
    assert [text for text in texts if not text.isascii()] == []


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["nosuché"], r"No such command 'nosuch\u00e9'"),
        (["why", "--data", "nirgendsé", "t-0"], r"nirgends\u00e9"),
        (["topics", "list", "--bootstrap", "\udcff:1"], r"'\udcff' is not valid Unicode"),
    ],
)
def test_errors_are_escaped_where_the_output_is_ascii(arguments: list[str], shown: str) -> None:
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "minikafka", *arguments]
    done = subprocess.run(command, capture_output=True, env=environment, timeout=60)
    assert done.returncode in (1, 2)
    text = done.stderr.decode("ascii")
    assert shown in text
    assert "Traceback" not in text


@pytest.mark.parametrize("arguments", [[], ["topics"]])
def test_a_command_group_without_a_command_shows_its_help_in_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert call(monkeypatch, *arguments) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("Usage: ")
    assert "Error" not in shown
    assert "\nCommands:\n" in shown


@pytest.mark.parametrize("group", ["topics", "cluster", "configs", "transactions", "plan"])
def test_help_of_a_command_group_does_not_shorten_the_summaries(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], group: str
) -> None:
    assert call(monkeypatch, group, "--help") == 0
    summaries = capsys.readouterr().out.partition("Commands:")[2]
    assert not re.search(r"\.\.\.$", summaries, re.MULTILINE)


@pytest.mark.parametrize(
    "arguments",
    [
        ["fly"],
        ["stop"],
        ["broker"],
        ["reassign"],
        ["topics", "list", "-b", "nonsense"],
        ["status", "--unknown"],
        ["kill", "1", "2"],
    ],
    ids=" ".join,
)
def test_invalid_arguments_print_the_usage_and_exit_with_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert call(monkeypatch, *arguments) == 2
    assert "Usage: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["kill", "broker-1"],
        ["logs", "broker-1"],
        ["logs", "--tail", "-1"],
        ["up", "--brokers", "none"],
        ["up", "--brokers", "0"],
        ["topics", "create", "t", "--config", "novalue"],
        ["consume", "t", "-o", "sometimes"],
        ["consume", "t", "-o", "5:x"],
        ["produce", "t", "--acks", "2"],
        ["produce", "t", "nowhere"],
        ["produce", "t", "-l", "."],
        ["up", "--config", "nowhere.toml"],
        ["up", "--config", "."],
        ["broker", "--config", "nowhere.toml"],
        ["reassign", "--file", "nowhere.json"],
        ["elect", "--preferred", "--file", "nowhere.json"],
        ["plan", "reassign", "--file", "nowhere.json"],
        ["topics", "delete-records", "--offset-json-file", "nowhere.json"],
    ],
    ids=" ".join,
)
def test_invalid_value_is_one_line_and_exits_with_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert call(monkeypatch, *arguments) == 2
    assert re.fullmatch("minikafka: Invalid value.*\n", capsys.readouterr().err)


def test_mistake_in_the_file_of_a_pipeline_is_one_line_and_exits_with_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "clicks.toml"
    file.write_text("")
    assert call(monkeypatch, "pipeline", "run", str(file)) == 2
    assert capsys.readouterr().err == f"minikafka: {file}: the table [pipeline] is missing\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["status", "--data", "nowhere"], "there is no cluster in"),
        (["stop", "1", "--data", "nowhere"], "there is no cluster in"),
        (
            ["up", "--config", "latin.toml"],
            "latin.toml: line 2 is not UTF-8 text; name a cluster.toml",
        ),
        (["up", "--config", "wrong.toml"], "wrong.toml: "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_failure_prints_one_line_and_exits_with_code_1(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: list[str],
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.toml").write_text("[broker]\nlog.segment.byts = 1\n")
    (tmp_path / "latin.toml").write_bytes(b"[cluster]\ndata = '\xe4'\n")
    assert call(monkeypatch, *arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith("minikafka: ")
    assert expected in error
    assert "Errno" not in error
    assert error.count("\n") == 1


def test_broker_with_a_wrong_configuration_ends_with_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.toml").write_text("")
    assert call(monkeypatch, "broker", "--config", "empty.toml") == 2
    assert capsys.readouterr().err.startswith("minikafka: empty.toml: broker.id is required")


HEAVY = {
    "aiohttp",
    "aiohttp.web",
    "aiozk",
    "asyncio",
    "kio",
    "minikafka.broker.broker",
    "minikafka.client",
    "minikafka.tools.cluster",
    "minikafka.tools.cluster.local",
    "rich.console",
    "uvloop",
}
"""Modules whose import takes long."""


def imported_by(*commands: str) -> list[set[str]]:
    """Run commands in one new process; return, for each command, the modules whose code ran up to its end."""
    code = (
        "import sys\n"
        "from minikafka.__main__ import run\n"
        "from minikafka.tools.cli.lazy import LazyModule\n"
        "for command in sys.argv[1:]:\n"
        "    sys.argv = ['minikafka', *command.split()]\n"
        "    try:\n        run()\n"
        "    except SystemExit as end:\n        assert not end.code, command\n"
        "    loaded = [name for name, one in sys.modules.items() if type(one) is not LazyModule]\n"
        "    print('\\nIMPORTED', *loaded, flush=True)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(minikafka.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", code, *commands],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("IMPORTED ")]
    return [set(modules[1:]) for modules in lines]


def test_help_of_every_command_imports_no_heavy_module() -> None:
    groups = ["topics list", "cluster health", "configs set", "plan reassign"]
    commands = [f"{command} --help" for command in ("", *entry._COMMANDS, *groups)]
    found = imported_by(*commands)
    assert {c: names & HEAVY for c, names in zip(commands, found, strict=True)} == {
        command: set() for command in commands
    }


@pytest.fixture
def data_of_running_cluster(tmp_path: Path) -> Iterator[str]:
    """Yield the data directory of a cluster with one broker that answers only Metadata requests."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        broker = BrokerRecord(1, port, port, identify(os.getpid()))
        directory = ClusterDirectory(tmp_path)
        directory.write(ClusterRecord((broker,), "127.0.0.1:1"))
        directory.broker_data(1).mkdir()
        (directory.broker_data(1) / "meta.properties").write_text("cluster.id=id\n")
        threading.Thread(target=answer_metadata, args=(server,), daemon=True).start()
        yield str(tmp_path)


def answer_metadata(server: socket.socket) -> None:
    """Answer the first Kafka request of each connection with a Metadata response; close HTTP connections."""
    with suppress(OSError):
        while True:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                frame = connection.recv(65_536)
                if not frame.startswith(b"POST"):
                    body = codec.response(METADATA, VERSIONS[METADATA], topics=TOPICS)
                    correlation = int.from_bytes(frame[8:12], "big")
                    answer = codec.encode_response(correlation, METADATA, VERSIONS[METADATA], body)
                    connection.sendall(answer)
                    connection.recv(1)


TOPICS = [{"name": "t", "topic_id": None, "partitions": []}]


def test_topics_list_imports_no_broker_and_no_library_of_messages(
    data_of_running_cluster: str,
) -> None:
    [found] = imported_by(f"topics list --data {data_of_running_cluster}")
    assert found & HEAVY == {"asyncio", "minikafka.client", "minikafka.tools.cluster"}


def test_status_imports_aiohttp_but_no_broker_or_client(data_of_running_cluster: str) -> None:
    command = f"status --data {data_of_running_cluster}"
    needed = {"aiohttp", "asyncio", "minikafka.tools.cluster", "minikafka.tools.cluster.local"}
    as_json, as_table = imported_by(f"{command} --json", command)
    assert as_json & HEAVY == needed
    assert as_table & HEAVY == needed | {"rich.console"}


def test_error_about_a_missing_file_has_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", "plan.json")

    monkeypatch.setattr(entry.commands, "main", fail)
    assert call(monkeypatch, "status") == 1
    assert capsys.readouterr().err == "minikafka: plan.json: No such file or directory\n"


def test_click_exception_is_printed_in_one_line_and_exits_with_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise click.ClickException("there is no group shop")

    monkeypatch.setattr(entry.commands, "main", fail)
    assert call(monkeypatch, "why", "--group", "shop") == 1
    assert capsys.readouterr().err == "minikafka: there is no group shop\n"


EVIL = "g\x1b[2J\x9b31m\u200b\u202e"
SAFE = r"g\u001b[2J\u009b31m\u200b\u202e"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (click.ClickException(EVIL), f"minikafka: {SAFE}\n"),
        (ClusterError("refused", EVIL), f"minikafka: refused ({SAFE})\n"),
        (OSError(2, "No such file", EVIL), f"minikafka: {SAFE}: No such file\n"),
        (click.UsageError(EVIL), f"Error: {SAFE}\n"),
        (click.BadParameter(EVIL, param_hint="-t"), f"minikafka: Invalid value for -t: {SAFE}\n"),
    ],
)
def test_text_from_outside_is_escaped_in_errors(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    expected: str,
) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(entry.commands, "main", fail)
    call(monkeypatch, "status")
    assert capsys.readouterr().err == expected


def test_warning_of_a_library_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def warn(**_: object) -> None:
        logging.getLogger("minikafka.client").warning("broker %s", f"b\n{EVIL}")

    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging, "lastResort", logging._StderrHandler(logging.WARNING))  # type: ignore[attr-defined]
    monkeypatch.setattr(entry.commands, "main", warn)
    monkeypatch.setattr(sys, "argv", ["minikafka", "status"])
    with pytest.raises(SystemExit):
        entry.main()
    assert capsys.readouterr().err == f"broker b\\n{SAFE}\n"


def test_error_is_printed_with_its_hint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise ClusterError("there is no cluster in d", "minikafka up creates one")

    monkeypatch.setattr(entry.commands, "main", fail)
    assert call(monkeypatch, "status") == 1
    expected = "minikafka: there is no cluster in d (minikafka up creates one)\n"
    assert capsys.readouterr().err == expected


def test_system_error_is_printed_without_its_errno(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(entry.commands, "main", fail)
    assert call(monkeypatch, "status") == 1
    assert capsys.readouterr().err == "minikafka: Invalid argument\n"


def by_shell(line: str) -> subprocess.CompletedProcess[str]:
    """Run a line in bash; `$MINIKAFKA` in it stands for the command."""
    environment = {**os.environ, "PYTHONPATH": str(Path(minikafka.__file__).parents[1])}
    environment["MINIKAFKA"] = f"{sys.executable} -m minikafka"
    return subprocess.run(
        ["bash", "-c", line], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("$MINIKAFKA --help > /dev/full", "No space left on device"),
        ("$MINIKAFKA produce t -b 127.0.0.1:1 <&-", "standard input is closed: minikafka produce"),
        (
            "$MINIKAFKA consume t -b 127.0.0.1:1 >&-",
            "standard output is closed: the records cannot be printed",
        ),
    ],
)
def test_error_about_a_closed_or_full_standard_stream_is_one_line(line: str, expected: str) -> None:
    done = by_shell(line)
    assert done.returncode == 1
    assert done.stderr.startswith("minikafka: ")
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1


def test_failed_flush_of_standard_output_at_the_end_is_an_error() -> None:
    """Output that is still in `print`'s buffer is written after the command has returned."""
    program = "import minikafka.tools.cli.main as cli; cli.commands.main = lambda **_: print(1); cli.main()"
    done = by_shell(f"unset PYTHONUNBUFFERED; {sys.executable} -c '{program}' > /dev/full")
    assert done.returncode == 1
    assert done.stderr == "minikafka: standard output: No space left on device\n"


def test_command_ends_by_sigpipe_when_the_reader_of_its_output_has_closed() -> None:
    """The exit code is 128 + SIGPIPE, which a pipeline without `pipefail` ignores."""
    done = by_shell("exec 3> >(exec >&-); wait $!; $MINIKAFKA --help >&3; echo $? >&2")
    assert done.stderr == "141\n"


def test_version_has_a_short_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "-V") == 0
    assert re.search(r"\b\d+\.\d+", capsys.readouterr().out)


def test_data_directory_is_that_of_the_option_else_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("MINIKAFKA_DATA", str(tmp_path / "of-environment"))
    assert call(monkeypatch, "status") == 1
    assert "of-environment" in capsys.readouterr().err
    assert call(monkeypatch, "status", "--data", str(tmp_path / "of-option")) == 1
    assert "of-option" in capsys.readouterr().err
    monkeypatch.setenv("MINIKAFKA_DATA", "")
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "status") == 1
    assert "of-environment" not in capsys.readouterr().err


def commands_below(command: click.Command, context: click.Context) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands_below(below, click.Context(below, context, name))


def test_every_command_that_takes_bootstrap_takes_kafkas_name_for_it() -> None:
    found = [
        option.opts
        for command in commands_below(entry.commands, click.Context(entry.commands))
        for option in command.params
        if "--bootstrap" in option.opts
    ]
    assert len(found) > 20
    assert all("--bootstrap-server" in names for names in found)
