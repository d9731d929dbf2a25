"""The ports of one broker's mode (`modes/zookeeper/ports.py`), with stand-ins for those that a test does not use."""

from __future__ import annotations

from typing import Any

from minikafka.base.config import BrokerConfig
from minikafka.broker.ledger.record import NOTHING
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.broker.step_gate import StepGate
from minikafka.runtime.tasks import TaskRegistry
from minikafka.simulation.clocks import ManualClock
from minikafka.zookeeper.nodes.faults import Faults


def mode_ports(broker_id: int = 1, **given: Any) -> Ports:
    """Return the ports of a broker. `given`: the fields of `Ports` that are not the defaults."""
    ports = Ports(
        config=BrokerConfig.from_mapping({"broker.id": broker_id}),
        zookeeper=None,  # type: ignore[arg-type]
        clock=ManualClock(),
        tasks=TaskRegistry(),
        ledger=NOTHING,
        gate=StepGate(),
        faults=Faults(),
    )
    return ports._replace(**given)
