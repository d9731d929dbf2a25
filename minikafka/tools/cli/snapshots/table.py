"""The columns of snapshots."""

from __future__ import annotations

from datetime import UTC, datetime
from operator import attrgetter
from typing import Final

from minikafka.tools.cli.terminal.columns import Column


def _time(taken_ms: object) -> str:
    assert isinstance(taken_ms, int)
    return datetime.fromtimestamp(taken_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


SNAPSHOTS: Final = (
    Column("SNAPSHOT", "name", attrgetter("name")),
    Column("TAKEN", "taken_ms", attrgetter("taken_ms"), text=_time),
    Column("BROKERS", "brokers", lambda one: len(one.brokers)),
    Column("COPIED-BYTES", "copied_bytes", attrgetter("copied_bytes")),
    Column("LINKED-BYTES", "linked_bytes", attrgetter("linked_bytes")),
    Column("STOPPED-MS", "stopped_ms", attrgetter("stopped_ms")),
)
