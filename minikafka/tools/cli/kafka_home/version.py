"""The version of Kafka whose distribution `kafka-home` imitates, and how its scripts name the folder."""

from __future__ import annotations

from typing import Final

KAFKA_VERSION: Final = "3.9.1"
SCALA_VERSION: Final = "2.13"
HOME: Final = "minikafka.home"
"""The system property with the folder that `kafka-home` has made.

Programs look for brokers by `grep -i kafka.Kafka` among all command lines: its name must not match.
"""
