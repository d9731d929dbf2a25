"""The beans of Apache Kafka 3.9 whose names minikafka's metrics have, recorded from a broker (test_kafka_beans.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_name("beans.txt")
ON_DEMAND: Final = frozenset(
    f"kafka.server:type={kind},name=byte-rate"
    for kind in ("LeaderReplication", "FollowerReplication")
)
"""Beans that one broker alone does not have, because it replicates nothing (ReplicationQuotaManager.scala)."""


def recorded() -> set[str]:
    """Return the names, `domain:type=TYPE,name=NAME`. An attribute of a bean without a name counts as its name."""
    return set(FILE.read_text().splitlines())
