"""Finding and reading the TOML files that `--config` names. The errors contain the name of the file.

Without `--config`, commands use `cluster.toml` in the current directory, if there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from minikafka.base.config.cluster import ClusterConfig
from minikafka.base.errors import ConfigError

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


@contextmanager
def errors_name_file(file: Path | None) -> Iterator[None]:
    """Prefix each ConfigError of the `with` block with the name of the configuration file, if `file` is given."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}" if file else str(error)) from error


def read_config(file: Path, hint: str) -> str:
    """Return the text of a configuration file.

    Raises ConfigError with the file's name, the reason, and `hint`: what the user can do.
    """
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"{file}: there is no such file; {hint}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: not UTF-8 text; {hint}") from error
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}; {hint}") from error
