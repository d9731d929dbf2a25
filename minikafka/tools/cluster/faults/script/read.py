"""Reading a fault script for a cluster, and checking it against what exists there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from minikafka.tools.cluster.directory import ClusterError, ClusterRecord
from minikafka.tools.cluster.faults.names import step_names
from minikafka.tools.cluster.faults.network import API_KEYS
from minikafka.tools.cluster.faults.script.entries import Known, ScriptEntry, parse_file, parse_rows


def read_script(
    record: ClusterRecord,
    script: str | Path | Iterable[Mapping[str, object]],
    *,
    is_endless: bool = True,
) -> list[ScriptEntry]:
    """Return the entries of a file, or of a list of mappings. Raises ClusterError, which names the place.

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
    if not isinstance(script, str | Path):
        return parse_rows(script, "", known)
    try:
        text = Path(script).read_text(encoding="utf-8")
    except OSError as error:
        raise ClusterError(f"{script}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ClusterError(f"{script} is not UTF-8") from error
    return parse_file(text, str(script), known)
