"""The public names of the reader of logs."""

from __future__ import annotations

from minikafka.checks.isolation.logs import Stored, stored

__all__ = ["Stored", "stored"]
