"""The time that a service manager gives a broker to stop."""

from __future__ import annotations

from typing import Final

from minikafka.base.config import BrokerConfig
from minikafka.broker.controlled_shutdown import longest_ms

REST_S: Final = 60
"""Time for a stop apart from the attempts to hand over leaderships: the logs are flushed and closed."""


def handover_s(config: BrokerConfig) -> int:
    """Return the maximum time of all attempts to hand over leaderships."""
    return -(-longest_ms(config) // 1000)


def stop_s(config: BrokerConfig) -> int:
    """Return the time after which a broker may be killed."""
    return handover_s(config) + REST_S
