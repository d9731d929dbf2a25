"""Changed settings of a broker, applied to its replicas and its controller."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.metrics import Metrics
from minikafka.broker.clients.quotas import BrokerQuotas
from minikafka.broker.rpc.messages import SettingChange
from minikafka.broker.settings.config_updates import ConfigUpdates
from minikafka.broker.settings.dynamic_config import DynamicConfig
from minikafka.broker.settings.dynamic_stores import DynamicStores
from minikafka.security.credentials import KnownCredentials
from minikafka.simulation.clocks import LoopClock

FILE = {"broker.id": "1", "num.partitions": "3"}
SECRET = {"minikafka.cluster.secret": "0123456789abcdef"}


class Replicas:
    def __init__(self) -> None:
        self.applied: list[BrokerConfig] = []

    async def topics_configured(self, topics: Sequence[str] | None) -> None: ...

    def set_broker_defaults(self, config: BrokerConfig) -> None:
        self.applied.append(config)


def updates(replicas: Replicas) -> ConfigUpdates:
    config = BrokerConfig.from_mapping({**FILE, **SECRET})
    settings = DynamicConfig(config)
    quotas = BrokerQuotas(config, LoopClock(), Metrics(), {})
    controller: Any = SimpleNamespace(set_broker_defaults=replicas.set_broker_defaults)
    stores = DynamicStores(settings.static, bytes)
    credentials = KnownCredentials(b"secret")
    found = ConfigUpdates(settings, replicas, controller, credentials, stores, quotas)
    found.limit_connections = replicas.applied.append
    return found


def test_changed_settings_that_need_no_restart_are_applied() -> None:
    replicas = Replicas()
    found = updates(replicas).file_changed({**FILE, "num.partitions": "6", "log.retention.ms": "5"})
    assert found == [
        SettingChange("num.partitions", "3", "6", "restart"),
        SettingChange("log.retention.ms", None, "5", "now"),
    ]
    assert {(c.log_retention_ms, c.num_partitions) for c in replicas.applied} == {(5, 3)}


def test_unchanged_config_file_that_is_sent_without_secrets_changes_nothing() -> None:
    replicas = Replicas()
    assert updates(replicas).file_changed(FILE) == []
    assert replicas.applied == []


def test_invalid_file_is_refused_and_changes_nothing() -> None:
    replicas = Replicas()
    with pytest.raises(KafkaError, match=r"num\.partitions") as caught:
        updates(replicas).file_changed({**FILE, "num.partitions": "0", "log.retention.ms": "5"})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert replicas.applied == []
