"""Group settings that contradict each other are refused. The error names the values."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError
from minikafka.client import GroupSettings


def test_unknown_assignor_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"assignors must be some of range, .* got spread"):
        GroupSettings(assignors=("range", "spread"))


def test_heartbeat_interval_must_be_below_the_session_timeout() -> None:
    with pytest.raises(ConfigError, match=r"heartbeat_interval_ms \(6000\) must be below"):
        GroupSettings(session_timeout_ms=6_000, heartbeat_interval_ms=6_000)
