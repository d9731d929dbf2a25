"""The public names of the check of transactions."""

from __future__ import annotations

from minikafka.checks.isolation.verdict import Verdict, check

__all__ = ["Verdict", "check"]
