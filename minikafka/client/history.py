"""The public name of the history of a producer (README.md)."""

from __future__ import annotations

from minikafka.checks.delivery import History

__all__ = ["History"]
