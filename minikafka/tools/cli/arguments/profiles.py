"""The profile file: named clusters with addresses and security, for `minikafka --cluster NAME` and MINIKAFKA_CLUSTER.

The file is config.toml in the folder minikafka of XDG_CONFIG_HOME, by default of ~/.config. A table `[clusters.NAME]`
has the key `bootstrap`, and either `command-config` or the keys of such a file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import click

import minikafka.base.config.client as client_configs
import minikafka.base.toml as toml
import minikafka.client.network as network
import minikafka.tools.cli.arguments.config_files as config_files
from minikafka.base.errors import ConfigError
from minikafka.base.properties import Property
from minikafka.tools.cli.terminal.command_group import nearest
from minikafka.tools.cli.terminal.echo import echo

VARIABLE: Final = "MINIKAFKA_CLUSTER"
_CLUSTERS: Final = "clusters"
_BOOTSTRAP: Final = "bootstrap"
_COMMAND_CONFIG: Final = "command-config"
_GIVEN: Final = f"{__name__}.given"
_OTHERS: Final = 0o077
"""The permissions of everyone but the owner of a file."""
_HINT: Final = (
    "write a table [clusters.NAME] with a key bootstrap there, or name brokers by --bootstrap"
)


class UnknownProfile(ConfigError):
    """The option or variable names a cluster that the file does not have, or there is no file."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Profile:
    """A named cluster. `entries`: its keys of security. `command_config`: the file that has them instead, or None."""

    name: str
    file: Path
    bootstrap: str
    entries: tuple[Property, ...]
    command_config: str | None

    @property
    def is_plain(self) -> bool:
        """True if the profile says nothing about security."""
        return not self.entries and self.command_config is None


def profile_file() -> Path:
    """Return the path of the profile file, whether it exists or not."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    folder = Path(base) if os.path.isabs(base) else Path("~/.config").expanduser()
    return folder / "minikafka" / "config.toml"


def remember_name(context: click.Context, option: click.Parameter, name: str | None) -> None:
    """Store the value of the option `--cluster` of `minikafka`; a click callback."""
    context.meta[_GIVEN] = name


def name_in_option(context: click.Context) -> str | None:
    """Return the profile that the option `--cluster` of `minikafka` names."""
    found: str | None = context.meta.get(_GIVEN)
    return found


def name_in_environment() -> str | None:
    """Return the profile that MINIKAFKA_CLUSTER names, None if it is not set or empty."""
    return os.environ.get(VARIABLE) or None


def names() -> list[str]:
    """Return the names of the profiles, sorted. Raises ConfigError."""
    file = profile_file()
    return sorted(_tables(file, _text(file))) if file.exists() else []


@lru_cache
def read_profile(name: str) -> Profile:
    """Return the profile of this name. Raises ConfigError, which names the file, and the line of a wrong key.

    Prints a warning once if other users can read its passwords.
    """
    file = profile_file()
    if not file.exists():
        raise UnknownProfile(f"there is no file {file}, so there is no cluster {name}; {_HINT}")
    text = _text(file)
    found = _tables(file, text)
    if name not in found:
        raise UnknownProfile(f"{file}: {_unknown(name, found)}")
    with config_files.errors_name_file(file):
        profile = _profile(name, file, text, found[name])
    _warn_of_readers(profile)
    return profile


def _text(file: Path) -> str:
    return config_files.read_config(file, _HINT)


def _tables(file: Path, text: str) -> Mapping[str, Any]:
    with config_files.errors_name_file(file):
        document = toml.read_toml(text)
        if unknown := [key for key in document if key != _CLUSTERS]:
            line = _line_of(text, unknown[0])
            raise ConfigError(
                f"line {line}: unknown key {unknown[0]}; the only tables are [clusters.NAME]"
            )
        found = toml.table_of(document, _CLUSTERS)
        for name, table in found.items():
            if not isinstance(table, dict):
                raise ConfigError(f"clusters.{name} must be a table: [clusters.{name}]")
        return found


def _unknown(name: str, found: Mapping[str, Any]) -> str:
    if not found:
        return f"it has no clusters: write a table [clusters.{name}]"
    near = nearest(name, found)
    question = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"it has no cluster {name}, but {', '.join(sorted(found))}{question}"


def _profile(name: str, file: Path, text: str, table: Mapping[str, Any]) -> Profile:
    where = f"{_CLUSTERS}.{name}"
    values = {key: _as_text(f"{where}.{key}", value) for key, value in _flat(table).items()}
    bootstrap = values.pop(_BOOTSTRAP, None)
    if bootstrap is None:
        raise ConfigError(f'{where} needs the key bootstrap, such as bootstrap = "kafka-1:9092"')
    try:
        network.parse_bootstrap(bootstrap)
    except ConfigError as error:
        raise ConfigError(f"{where}.bootstrap: {error}") from None
    command_config = values.pop(_COMMAND_CONFIG, None)
    if command_config is not None and values:
        first = next(iter(values))
        raise ConfigError(f"{where}.{first} must be in the file of command-config, or without it")
    for key in values:
        if not client_configs.is_of_security(key):
            known = ", ".join([_BOOTSTRAP, _COMMAND_CONFIG])
            near = nearest(key, [_BOOTSTRAP, _COMMAND_CONFIG, *client_configs.KEYS])
            question = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(
                f"{where}.{key} is unknown{question}; known are {known} and the keys of TLS and SASL"
            )
    lines = _lines(text)
    entries = tuple(
        Property(key, _located(key, value, file), lines.get(f"{where}.{key}", 1))
        for key, value in values.items()
    )
    with config_files.errors_name_line(file, entries):
        client_configs.client_config(entries)
    chosen = None if command_config is None else str(_path(command_config, file))
    return Profile(name, file, bootstrap, entries, chosen)


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values by dotted key: TOML reads `security.protocol = …` as a table in a table."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


def _as_text(key: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int):
        raise ConfigError(f"{key} must be a text in quotes")
    return str(value)


def _lines(text: str) -> dict[str, int]:
    return {name: one.line for one in toml.statements(text) for name in one.names}


def _line_of(text: str, key: str) -> int:
    """Return the line of the first statement that defines something in the table or key."""
    return next(
        (
            one.line
            for one in toml.statements(text)
            for name in (one.table, *one.names)
            if f"{name}.".startswith(f"{key}.")
        ),
        1,
    )


def _located(key: str, value: str, file: Path) -> str:
    return str(_path(value, file)) if key.endswith(".location") else value


def _path(value: str, file: Path) -> Path:
    """Return a path in the profile file, which is relative to the folder of that file."""
    return file.parent / Path(value).expanduser()


def _warn_of_readers(profile: Profile) -> None:
    secret = next((one.name for one in profile.entries if client_configs.is_secret(one.name)), None)
    if secret is not None and profile.file.stat().st_mode & _OTHERS:
        echo(
            f"warning: {profile.file} has {secret}, and other users can access it: "
            f"`chmod 600 {profile.file}`",
            err=True,
        )
