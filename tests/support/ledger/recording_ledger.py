"""A ledger that keeps its lines in memory, as (kind, cause, fields)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minikafka.broker.ledger.forms import misfit


class RecordingLedger:
    """A ledger that appends each recorded line to `lines`."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, Mapping[str, Any]]] = []

    def record(self, kind: str, cause: str, fields: Mapping[str, Any]) -> None:
        """Append the line to `lines`. Lines without a field of their form fail the test."""
        assert not misfit(kind, fields), (kind, misfit(kind, fields), fields)
        self.lines.append((kind, cause, fields))
