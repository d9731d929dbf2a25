"""The version of Kafka whose distribution `kafka-home` imitates, and how its scripts name the folder."""

from __future__ import annotations

from typing import Final

KAFKA_VERSION: Final = "3.9.1"
SCALA_VERSION: Final = "2.13"
HOME: Final = "minikafka.kafka.home"
"""The system property with the folder that `kafka-home` has made."""
