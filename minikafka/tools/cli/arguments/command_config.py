"""The file that `--command-config` names: how a command connects to brokers that encrypt or authenticate.

Without the option, a command that finds its brokers in the data directory of a secure cluster uses the file of the
administrator there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

import minikafka.base.config.client as client_configs
import minikafka.base.properties as properties
import minikafka.client.login as logins
import minikafka.client.security as client_security
import minikafka.runtime.clock as clocks
import minikafka.tools.cli.arguments.config_files as config_files

T = TypeVar("T")

_FILE: Final = f"{__name__}.file"
_DEFAULT: Final = f"{__name__}.default"
_CONNECTOR: Final = f"{__name__}.connector"
_HINT: Final = "name a file of properties as Kafka's tools read it"


def remember_file(context: click.Context, option: click.Parameter, file: str | None) -> None:
    """Store the value of `--command-config`; a click callback."""
    context.meta[_FILE] = file


def command_config_file(context: click.Context | None = None) -> str | None:
    """Return the `--command-config` of the running command, or of the command of `context`; None without it."""
    context = context or click.get_current_context(silent=True)
    found: str | None = context.meta.get(_FILE) if context else None
    return found


def use_by_default(file: str, context: click.Context | None = None) -> None:
    """Let the running command, or that of `context`, connect as this file says if it has no `--command-config`."""
    context = context or click.get_current_context(silent=True)
    if context is not None:
        context.meta[_DEFAULT] = file


def _file_in_use(context: click.Context | None) -> str | None:
    context = context or click.get_current_context(silent=True)
    default: str | None = context.meta.get(_DEFAULT) if context else None
    return command_config_file(context) or default


def connector(context: click.Context | None = None) -> logins.Connector | None:
    """Return how the running command, or that of `context`, connects to brokers; None: in the clear, without login.

    The file is read once. Raises ConfigError, which names the file and the line.
    """
    file = _file_in_use(context)
    if file is None:
        return None
    meta = (context or click.get_current_context()).meta
    if _CONNECTOR not in meta:
        rng, clock = clocks.SystemRng(), clocks.SystemClock()
        meta[_CONNECTOR] = _from_file(
            file, lambda config: client_security.connector_from(config, rng, clock)
        )
    made: logins.Connector = meta[_CONNECTOR]
    return made


def aiokafka_security() -> dict[str, Any]:
    """Return the arguments with which aiokafka connects as the running command does. Raises ConfigError."""
    file = _file_in_use(None)
    if file is None:
        return {}
    rng, clock = clocks.SystemRng(), clocks.SystemClock()
    return _from_file(file, lambda config: client_security.aiokafka_arguments(config, rng, clock))


def _from_file(file: str, use: Callable[[client_configs.ClientConfig], T]) -> T:
    entries: list[properties.Property] = []
    path = Path(file)
    with config_files.errors_name_line(path, entries):
        entries += properties.decode_properties(config_files.read_bytes(path, _HINT))
        return use(client_configs.client_config(entries))
