"""Finding and reading the files that `--config` names. The errors contain the name of the file.

Without `--config`, commands use `cluster.toml` in the current directory, if there is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from minikafka.base.config.cluster import ClusterConfig, data_in
from minikafka.base.errors import ClusterLost, ConfigError
from minikafka.base.properties import Property
from minikafka.base.toml import place_of
from minikafka.tools.cli.terminal.echo import echo

_CLUSTER_FILE: Final = Path("cluster.toml")


def load_cluster_config(file: str | None) -> ClusterConfig:
    """Return the configuration in `file`, else in ./cluster.toml, else the default configuration.

    In the default configuration all keys have Kafka's defaults, but new topics are replicated.

    Raises ConfigError, whose text names the file.
    """
    path = find_cluster_file(file)
    if path is None:
        return ClusterConfig(is_default=True, replicates_topics=True)
    text = read_config(path, "name a cluster.toml, or leave --config out for Kafka's defaults")
    with errors_name_file(path):
        return replace(ClusterConfig.parse(text), was_named=file is not None)


def find_cluster_file(file: str | None) -> Path | None:
    """Return `file` as a path if given, else ./cluster.toml if this file exists, else None."""
    if file:
        return Path(file)
    return _CLUSTER_FILE if _CLUSTER_FILE.exists() else None


def data_of_invalid_file(error: ConfigError) -> str:
    """Return the data directory in ./cluster.toml, which is invalid; print the error as a warning.

    Raises ConfigError if the mistake may be in the line that names the directory.
    """
    text = _CLUSTER_FILE.read_bytes().decode(errors="replace")
    data = data_in(text)
    if data is None:
        raise ConfigError(
            f"{error}; correct it, or name the data directory by --data DIR"
        ) from error
    _warn(f"{error}; this command needs only the data directory, {data}")
    return data


@lru_cache
def _warn(text: str) -> None:
    echo(f"warning: {text}", err=True)


@contextmanager
def errors_name_file(file: Path | None) -> Iterator[None]:
    """Begin the text of each ConfigError of the `with` block with the name of `file` (if given) and the line."""
    try:
        yield
    except ConfigError as error:
        is_named = str(error).startswith(f"{file}: ")
        if (
            file is None or is_named or isinstance(error, ClusterLost)
        ):  # the data are wrong, not the file
            raise
        raise ConfigError(f"{file}: {_placed(file, str(error))}") from error


def _placed(file: Path, message: str) -> str:
    """Return the error message, preceded by the line of the file with the key that the message names."""
    with suppress(OSError, UnicodeDecodeError):
        if "line " not in message and (place := place_of(file.read_text("utf-8"), message)):
            return f"{place}: {message}"
    return message


def read_config(file: Path, hint: str) -> str:
    """Return the text of a configuration file.

    Raises ConfigError with the file's name, the reason, and `hint`: what the user can do.
    """
    try:
        return read_bytes(file, hint).decode()
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}: line {line} is not UTF-8 text; {hint}") from error


def read_bytes(file: Path, hint: str) -> bytes:
    """Return the content of a configuration file. Raises ConfigError with the file's name, the reason, and `hint`."""
    try:
        return file.read_bytes()
    except FileNotFoundError as error:
        raise ConfigError(f"{file}: there is no such file; {hint}") from error
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}; {hint}") from error


@contextmanager
def errors_name_line(file: Path, entries: Sequence[Property]) -> Iterator[None]:
    """Begin the text of each ConfigError with a file of properties, and the line of the first key that it names."""
    try:
        yield
    except ConfigError as error:
        text = str(error)
        if text.startswith(f"{file}: "):
            raise
        named = [entry for entry in entries if entry.name and entry.name in text]
        if named and not text.startswith("line "):
            first = min(named, key=lambda entry: (text.index(entry.name), -len(entry.name)))
            text = f"line {first.line}: {text}"
        raise ConfigError(f"{file}: {text}") from None
