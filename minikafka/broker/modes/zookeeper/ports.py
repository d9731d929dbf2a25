"""What all objects of one broker's mode share: its settings, and the ports to the world."""

from __future__ import annotations

from typing import NamedTuple

from minikafka.base.config import BrokerConfig
from minikafka.base.model import BrokerId
from minikafka.base.ports import Clock, Gate, Ledger, Tasks, ZooKeeper
from minikafka.zookeeper.nodes.faults import Faults


class Ports(NamedTuple):
    """The settings at the start, and the ports, of one broker."""

    config: BrokerConfig
    zookeeper: ZooKeeper
    clock: Clock
    tasks: Tasks
    ledger: Ledger
    gate: Gate
    faults: Faults
    """The malformed nodes that were logged, so that each is logged once."""

    @property
    def broker_id(self) -> BrokerId:
        """The id of this broker."""
        return self.config.broker_id
