"""The file that `--command-config` names: how a command connects to brokers that encrypt or authenticate.

Without the option, the profile of the cluster says it (`profiles.py`). A command that finds its brokers in the data
directory of a secure cluster uses the file of the administrator there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click

import minikafka.base.config.client as client_configs
import minikafka.base.properties as properties
import minikafka.client.login as logins
import minikafka.client.security as client_security
import minikafka.runtime.clock as clocks
import minikafka.tools.cli.arguments.config_files as config_files
import minikafka.tools.cli.arguments.profiles as profiles

T = TypeVar("T")

_FILE: Final = f"{__name__}.file"
_DEFAULT: Final = f"{__name__}.default"
_PROFILE: Final = f"{__name__}.profile"
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


def use_profile(profile: profiles.Profile, context: click.Context) -> None:
    """Let the command of `context` connect as the profile says if it has no `--command-config`."""
    context.meta[_PROFILE] = profile


def profile_in_use(context: click.Context | None = None) -> profiles.Profile | None:
    """Return the profile that says how the running command, or that of `context`, connects; None without one."""
    context = context or click.get_current_context(silent=True)
    if context is None or command_config_file(context) is not None:
        return None
    found: profiles.Profile | None = context.meta.get(_PROFILE)
    return found


def _file_in_use(context: click.Context | None) -> str | None:
    context = context or click.get_current_context(silent=True)
    profile = profile_in_use(context)
    if profile is not None:
        return profile.command_config
    default: str | None = context.meta.get(_DEFAULT) if context else None
    return command_config_file(context) or default


def connector(context: click.Context | None = None) -> logins.Connector | None:
    """Return how the running command, or that of `context`, connects to brokers; None: in the clear, without login.

    The file is read once. Raises ConfigError, which names the file and the line.
    """

    def made(config: client_configs.ClientConfig) -> logins.Connector:
        return client_security.connector_from(config, clocks.SystemRng(), clocks.SystemClock())

    chosen = context or click.get_current_context(silent=True)
    if chosen is not None and _CONNECTOR not in chosen.meta:
        chosen.meta[_CONNECTOR] = _with_config(made, context)
    found: logins.Connector | None = chosen.meta[_CONNECTOR] if chosen is not None else None
    return found


def aiokafka_security() -> dict[str, Any]:
    """Return the arguments with which aiokafka connects as the running command does. Raises ConfigError."""
    rng, clock = clocks.SystemRng(), clocks.SystemClock()
    found = _with_config(
        lambda config: client_security.aiokafka_arguments(config, rng, clock), None
    )
    return found or {}


def security_options() -> dict[str, str]:
    """Return the options with which Spark connects as the running command does. Raises ConfigError."""
    file, profile = _file_in_use(None), profile_in_use()
    entries: Sequence[properties.Property] = profile.entries if profile is not None else ()
    path = Path(file) if file is not None else None
    if path is not None:
        entries = properties.decode_properties(config_files.read_bytes(path, _HINT))
        with config_files.errors_name_line(path, entries):
            client_configs.client_config(entries)
    return {
        f"kafka.{name}": value
        for name, value, _ in entries
        if name.startswith(client_configs.SECURITY_PREFIXES)
    }


def _with_config(
    use: Callable[[client_configs.ClientConfig], T], context: click.Context | None
) -> T | None:
    """Return what `use` makes of the configuration in use; None if there is none."""
    file, profile = _file_in_use(context), profile_in_use(context)
    if file is not None:
        return _from_file(file, use)
    if profile is None or profile.is_plain:
        return None
    with config_files.errors_name_line(profile.file, profile.entries):
        return use(client_configs.client_config(profile.entries))


def _from_file(file: str, use: Callable[[client_configs.ClientConfig], T]) -> T:
    entries: list[properties.Property] = []
    path = Path(file)
    with config_files.errors_name_line(path, entries):
        entries += properties.decode_properties(config_files.read_bytes(path, _HINT))
        return use(client_configs.client_config(entries))
