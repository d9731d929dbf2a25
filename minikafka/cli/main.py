"""The `minikafka` command: a table of commands that are imported when called, and what errors look like.

Invariant: exit code 0 for success, 1 for a failure, 2 for a command that cannot be understood, 130
after Ctrl-C; a failure that was foreseen is one line without a traceback.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import Final, NoReturn

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
    try:
        code = commands.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = _INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone: nothing is left to say, not even when the stream closes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except (MinikafkaError, OSError) as error:
        print(f"minikafka: {' '.join(_told(error).split())}", file=sys.stderr)
        code = 1
    sys.exit(code)


def _told(error: Exception) -> str:
    """The error without the number of the system's."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)
