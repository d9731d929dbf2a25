"""The `minikafka` command: a table of commands that are imported when called, and what errors look like.

Invariant: exit code 0 for success, 1 for a failure, 2 for a command that cannot be understood, 130
after Ctrl-C, death by SIGPIPE when the reader of the output has gone; a failure that was foreseen is
one line without a traceback.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import Final, NoReturn, TextIO

import click

from minikafka.base.errors import MinikafkaError

_INTERRUPTED: Final = 130
_COMMANDS: Final = {
    "up": "processes",
    "down": "processes",
    "start": "processes",
    "stop": "processes",
    "status": "status",
    "broker": "broker",
    "topics": "topics",
    "reassign": "reassign",
    "elect": "elect",
    "cluster": "cluster",
    "configs": "configs",
    "produce": "produce",
    "consume": "consume",
    "trace": "trace",
    "why": "why",
    "plan": "plan",
}
"""Command to the module of this package that holds it, under the command's name."""


class _Commands(click.Group):
    """Commands in the order of the table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = _COMMANDS.get(cmd_name)
        if module is None:
            return None
        command = getattr(importlib.import_module(f"minikafka.cli.{module}"), cmd_name)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="minikafka")
def commands() -> None:
    """A Kafka-compatible cluster on this machine: brokers, topics, records."""
    # Called when the module of the command is loaded: from here on Ctrl-C is an exception.
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def main() -> NoReturn:
    """Run the command that the arguments name; ends the process."""
    output = sys.stdout
    try:
        code = commands.main(standalone_mode=False)
        if (trouble := _flush(output)) is not None:
            code = _failed(trouble, output)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = _INTERRUPTED
    except SystemExit:
        # click ends the process by itself when a pipe is closed, with streams that hide it in place.
        if sys.stdout is output:
            raise
        code = _failed(BrokenPipeError(), output)
    except (MinikafkaError, OSError) as error:
        code = _failed(error, output)
    sys.exit(code)


def _failed(error: BaseException, output: TextIO | None) -> int:
    """Say what went wrong; the exit code. Standard output that cannot be written is named as the cause."""
    trouble = _flush(output)
    if isinstance(error, BrokenPipeError):
        # The reader has seen enough (what the network breaks is told as a Kafka error). As with other
        # tools that is the end, and no failure to tell of.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.raise_signal(signal.SIGPIPE)
    text = f"standard output: {trouble.strerror}" if trouble is not None else _told(error)
    print(f"minikafka: {' '.join(text.split())}", file=sys.stderr)
    return 1


def _flush(output: TextIO | None) -> OSError | None:
    """Why what was printed cannot be written, if so; then nobody tries again when the stream closes."""
    try:
        if output is not None:
            output.flush()
    except OSError as trouble:
        assert output is not None, "it was written to"
        os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())
        return trouble
    return None


def _told(error: BaseException) -> str:
    """The error without the number of the system's."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)
