"""The mode in which a controller over ZooKeeper coordinates the brokers, with Kafka's znodes.

`mode.py` joins the cluster when a broker starts, and returns the broker's capabilities. The election and the work
of the active controller are in `terms/`.
"""

from minikafka.broker.modes.controller.mode import ControllerMode

__all__ = ["ControllerMode"]
