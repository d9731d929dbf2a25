"""The log of a broker and of a ZooKeeper server with the lines that programs wait for which start Kafka.

Such a program reads the output of the process, and goes on when a line says that the server has started.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from minikafka.tools.cli.foreground.server_log import TEXT, ServerLog
from minikafka.tools.cli.kafka_home.log4j import set_up_log
from minikafka.tools.cli.kafka_home.version import KAFKA_VERSION

_KAFKA: Final = logging.getLogger("kafka.server.KafkaServer")
_QUOTAS: Final = logging.getLogger("kafka.server.ClientQuotaManager")
_APP_INFO: Final = logging.getLogger("org.apache.kafka.common.utils.AppInfoParser")
_ZOOKEEPER: Final = logging.getLogger("org.apache.zookeeper.server.NIOServerCnxnFactory")
_OWN: Final = logging.getLogger("minikafka")
_QUOTA_KINDS: Final = ("Produce", "Fetch", "Request", "ControllerMutation")


class KafkaLog(ServerLog):
    """The log of a broker, as the log4j file in the system properties says."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        set_up_log(properties)
        super().__init__(TEXT)
        self._id = -1

    def name_broker(self, broker_id: int) -> None:
        """Log that the broker starts."""
        self._id = broker_id
        _KAFKA.info("[KafkaServer id=%d] starting", broker_id)

    def serves(self, text: str, users: Iterable[str] = ()) -> None:
        """Log that the broker has started, and the users whose credentials it knows as Kafka does: by their quotas."""
        _OWN.info("%s", text)
        for user in users:
            for kind in _QUOTA_KINDS:
                _QUOTAS.info("Removing %s quota for user %s", kind, user)
        _APP_INFO.info("Kafka version: %s", KAFKA_VERSION)
        _APP_INFO.info("Kafka commitId: minikafka")
        _KAFKA.info("[KafkaServer id=%d] started", self._id)

    def stopped(self, text: str) -> None:
        """Log that the broker has stopped."""
        _OWN.info("%s", text)
        _KAFKA.info("[KafkaServer id=%d] shut down completed", self._id)


class ZooKeeperLog(ServerLog):
    """The log of a ZooKeeper server, as the log4j file in the system properties says. `address`: HOST:PORT."""

    def __init__(self, properties: Mapping[str, str], address: str) -> None:
        set_up_log(properties)
        super().__init__(TEXT)
        self._address = address

    def serves(self, text: str, users: Iterable[str] = ()) -> None:
        """Log that the server has opened its port."""
        _OWN.info("%s", text)
        _ZOOKEEPER.info("binding to port %s", self._address)

    def stopped(self, text: str) -> None:
        """Log that the server has stopped."""
        _OWN.info("%s", text)
