"""Reading a fault script for a cluster, and checking it against what exists there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from io import TextIOBase
from pathlib import Path
from typing import Final, TextIO, TypeAlias

from minikafka.tools.cluster.directory import ClusterError, ClusterRecord
from minikafka.tools.cluster.faults.names import step_names
from minikafka.tools.cluster.faults.network import API_KEYS
from minikafka.tools.cluster.faults.script.entries import Known, ScriptEntry, parse_file, parse_rows

STANDARD_INPUT: Final = "standard input"
Script: TypeAlias = str | Path | TextIO | Iterable[Mapping[str, object]]
"""A TOML file: its path, or opened as standard input is; or the list of its entries."""


def read_script(
    record: ClusterRecord,
    script: Script,
    *,
    is_endless: bool = True,
) -> list[ScriptEntry]:
    """Return the entries of a script. Raises ClusterError, which names the place.

    `is_endless`: faults without `for` are allowed.
    """
    known = Known(
        [broker.id for broker in record.brokers],
        step_names(),
        API_KEYS,
        has_faults=record.has_faults,
        runs_zookeeper=record.runs_zookeeper,
        is_endless=is_endless,
    )
    if isinstance(script, TextIOBase):
        return parse_file(_text_of(script, STANDARD_INPUT), STANDARD_INPUT, known)
    if not isinstance(script, str | Path):
        return parse_rows(script, "", known)
    try:
        with Path(script).open(encoding="utf-8") as file:
            return parse_file(_text_of(file, str(script)), str(script), known)
    except OSError as error:
        raise ClusterError(f"{script}: {error.strerror}") from error


def _text_of(file: TextIOBase, name: str) -> str:
    try:
        return str(file.read())
    except UnicodeDecodeError as error:
        raise ClusterError(f"{name} is not UTF-8") from error
