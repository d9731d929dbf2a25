"""The `minikafka` command: the table of its subcommands, and the output of errors.

A command's module is imported only when that command runs; `--help` reads the summaries in the table.
Exit code: 0 success, 1 failure, 2 usage error, 130 Ctrl-C. The process ends by SIGPIPE when the reader of
its output has closed the pipe. An expected failure prints one line without a traceback.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, Final, NoReturn, TextIO

import click

from minikafka.base.errors import MinikafkaError
from minikafka.base.printable import printable
from minikafka.tools.cli.arguments import completion, profiles
from minikafka.tools.cli.processes.log_lines import escape_warnings
from minikafka.tools.cli.terminal.command_group import Entry, LazyGroup, nearest
from minikafka.tools.cli.terminal.echo import escape_unencodable

_INTERRUPTED: Final = 130
_SHOWN: Final = 60
"""An error about a character that UTF-8 lacks shows this many characters before and after it."""


_COMMANDS: Final = {
    "up": Entry("processes.up", "Start a cluster that keeps running."),
    "down": Entry("processes.down", "Stop all brokers and ZooKeeper; keep the data."),
    "start": Entry("processes.start", "Start one broker, or ZooKeeper, that is down."),
    "stop": Entry("processes.stop", "Stop a broker after its leaderships moved, or ZooKeeper."),
    "restart": Entry(
        "processes.restart", "Restart brokers, so that they read their configuration."
    ),
    "kill": Entry("processes.signals", "Kill one broker, or ZooKeeper, with SIGKILL."),
    "pause": Entry("processes.signals", "Pause one broker, or ZooKeeper, with SIGSTOP."),
    "resume": Entry("processes.signals", "Let a paused broker, or ZooKeeper, continue."),
    "advance-clock": Entry("advance_clock", "Move the wall time of all brokers ahead."),
    "snapshot": Entry("snapshots.take", "Keep the state of the whole cluster at one moment."),
    "restore": Entry("snapshots.restore", "Bring the whole cluster back to a snapshot."),
    "snapshots": Entry("snapshots", "Show and remove snapshots."),
    "faults": Entry("faults", "Harm disks, connections and sessions."),
    "status": Entry("diagnosis.status", "Show processes, controller and partitions."),
    "logs": Entry("processes.logs", "Print what the brokers and ZooKeeper have logged."),
    "console": Entry("foreground.console", "Serve a page that shows a cluster as it moves."),
    "broker": Entry("foreground.broker", "Run one broker in the foreground."),
    "init-secret": Entry(
        "foreground.init_secret", "Make the file that a broker needs beside Kafka's own file."
    ),
    "check-kafka-data": Entry(
        "foreground.check_kafka_data", "Check Apache Kafka's directories before a takeover."
    ),
    "zookeeper": Entry(
        "foreground.zookeeper", "Run one ZooKeeper server in the foreground, without Java."
    ),
    "kafka-home": Entry(
        "kafka_home.kafka_home", "Make a folder like a Kafka distribution, with its scripts."
    ),
    "kafka-tool": Entry(
        "kafka_home.kafka_tool",
        "Run a tool of Kafka's, for the scripts of kafka-home.",
    ),
    "fault-proxy": Entry(
        "foreground.fault_proxy", "Run the proxy of a cluster with faults in the foreground."
    ),
    "generate": Entry("generate", "Print files for systemd, Docker, logrotate and Prometheus."),
    "zk": Entry("zk", "Rebuild ZooKeeper's data, or move them elsewhere."),
    "topics": Entry("topics", "Create, list, describe, alter and delete topics."),
    "reassign": Entry("reassign.reassign", "Move partitions to other brokers."),
    "elect": Entry("elect", "Elect leaders of partitions."),
    "brokers": Entry("brokers", "Add or remove brokers of a cluster without a controller."),
    "cluster": Entry("cluster", "Describe the cluster, or check its health."),
    "log-dirs": Entry(
        "diagnosis.log_dirs", "Show the log directories of brokers and their replicas."
    ),
    "configs": Entry("configs", "Show and change settings of topics and brokers."),
    "groups": Entry("groups", "Show consumer groups and their lag, reset offsets."),
    "transactions": Entry("transactions", "Show, find and abort transactions."),
    "acls": Entry("acls", "Show, add and remove rights of users."),
    "users": Entry("users", "Show, add and remove users who log in with SCRAM."),
    "quotas": Entry("quotas", "Show and set quotas of users, client ids and addresses."),
    "produce": Entry("records.produce", "Send each line of standard input as a record."),
    "consume": Entry("records.consume", "Print the records of a topic, alone or in a group."),
    "trace": Entry("diagnosis.trace", "Show the history of a partition from the brokers' ledgers."),
    "why": Entry("diagnosis.why", "Explain what is wrong with a partition."),
    "verdict": Entry("verdict.verdict", "Say what clients suffered, from their histories."),
    "run": Entry("verdict.run", "Run a command with a temporary cluster."),
    "plan": Entry("plan", "Show what the controller would do, without doing it."),
    "pipeline": Entry("pipeline", "Run Spark jobs over topics."),
}
"""Every command by its name, in the order of `--help`."""


_GROUPS: Final = (
    "faults",
    "topics",
    "acls",
    "users",
    "quotas",
    "brokers",
    "cluster",
    "configs",
    "groups",
    "transactions",
    "plan",
    "pipeline",
    "zk",
    "generate",
    "snapshots",
)
"""The commands that have subcommands."""


_ON_THIS_MACHINE: Final = (
    "broker",
    "zookeeper",
    "init-secret",
    "check-kafka-data",
    "kafka-home",
    "kafka-tool",
    "fault-proxy",
    "zk",
)
"""The commands that use no cluster, but a server or files of this machine."""


class _Commands(LazyGroup):
    """The group of all commands, which suggests subcommands too."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first argument names. Refuse `--cluster` for a command without a cluster."""
        if args[0] in _ON_THIS_MACHINE and profiles.name_in_option(ctx) is not None:
            text = f"`minikafka {args[0]}` runs on this machine, and --cluster names a cluster elsewhere"
            raise click.UsageError(f"{text}: leave it out", ctx)
        return super().resolve_command(ctx, args)

    def suggestions(self, ctx: click.Context, name: str) -> list[str]:
        """Return commands similar to `name`; if there are none, return similar subcommands."""
        found = super().suggestions(ctx, name)
        if found:
            return found
        below = []
        for group in _GROUPS:
            command = self.get_command(ctx, group)
            assert isinstance(command, click.Group)
            below += [f"{group} {other}" for other in nearest(name, command.list_commands(ctx))]
        return below


def _profiles(context: click.Context, option: click.Parameter, incomplete: str) -> list[Any]:
    return completion.clusters(context, option, incomplete)  # a broker must not load this module


@click.group(
    cls=_Commands,
    table=_COMMANDS,
    package="minikafka.tools.cli",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--cluster",
    metavar="NAME",
    expose_value=False,
    callback=profiles.remember_name,
    shell_complete=_profiles,
    help="Use the cluster of this name in ~/.config/minikafka/config.toml (default: MINIKAFKA_CLUSTER).",
)
@click.version_option(None, "-V", "--version", package_name="minikafka")
def commands() -> None:
    """Run and administer a Kafka-compatible cluster on this machine."""


def main() -> NoReturn:
    """Run the command that `sys.argv` names, then exit the process."""
    output = sys.stdout
    escape_unencodable()
    escape_warnings()
    try:
        code = commands.main(standalone_mode=False)
        if (failure := _flush(output)) is not None:
            code = _report(failure, output)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        code = error.exit_code
    except click.UsageError as error:
        code = _refuse(error)
    except UnicodeEncodeError as error:
        shown = error.object[max(0, error.start - _SHOWN) : error.end + _SHOWN]  # it may be a file
        text = f"'{printable(shown)}' is not valid Unicode: write names and values in UTF-8"
        code = _report(click.ClickException(text), output)
    except (click.Abort, KeyboardInterrupt):
        code = _INTERRUPTED
    except SystemExit:
        # If the output pipe is closed, click replaces `sys.stdout` and exits.
        if sys.stdout is output:
            raise
        code = _report(BrokenPipeError(), output)
    except (click.ClickException, MinikafkaError, OSError) as error:
        code = _report(error, output)
    sys.exit(code)


def _refuse(error: click.UsageError) -> int:
    """Print what is wrong with the arguments, without the usage if it is a value. Return the exit code."""
    text = _one_line(error.format_message())
    if isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter):
        print(f"minikafka: {text}", file=sys.stderr)
    else:
        click.UsageError(text, error.ctx).show(sys.stderr)
    return error.exit_code


def _report(error: BaseException, output: TextIO | None) -> int:
    """Print one line about a failure and return the exit code.

    If writing to standard output fails, the line reports that failure instead.
    """
    failure = _flush(output)
    if isinstance(error, BrokenPipeError):
        # The reader of the output has closed the pipe: end silently by SIGPIPE, as other tools do.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.raise_signal(signal.SIGPIPE)
    text = _text_of(failure or error)
    print(f"minikafka: {_one_line(text)}", file=sys.stderr)
    return error.exit_code if isinstance(error, MinikafkaError) else 1


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()))


def _flush(output: TextIO | None) -> OSError | None:
    """Flush standard output; return the error if that fails.

    After a failure the output goes to /dev/null, so that closing the stream does not fail again.
    """
    try:
        if output is not None:
            output.flush()
    except OSError as failure:
        assert output is not None, "only an open stream can fail"
        os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())
        failure.filename = "standard output"
        return failure
    return None


def _text_of(error: BaseException) -> str:
    """Return the text of an error with its hint. For an OSError, leave out the error number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, MinikafkaError) and error.hint:
        return f"{error} ({error.hint})"
    return str(error)
