"""Why a data directory cannot be used. Each text names the file and what to do."""

from __future__ import annotations

from minikafka.base.errors import MinikafkaError


class CorruptData(MinikafkaError):
    """The files contradict what was made durable: starting with them would lose or invent changes."""


class UnsupportedData(MinikafkaError):
    """The data needs a feature of Apache ZooKeeper that this server does not have."""


class DirectoryInUse(MinikafkaError):
    """Another process uses the data directory."""
