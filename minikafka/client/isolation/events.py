"""The public names of the format of histories."""

from __future__ import annotations

from minikafka.checks.histories import Event, HistoryError, Recorder, parse

__all__ = ["Event", "HistoryError", "Recorder", "parse"]
