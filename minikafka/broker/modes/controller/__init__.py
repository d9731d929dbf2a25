"""The ZooKeeper coordination mode: implements the Coordinator port with Kafka's znodes.

`mode.py` joins the cluster when a broker starts, and creates the broker's coordinator (`coordinator.py`). The
election and the work of the active controller are in `terms/`.
"""

from minikafka.broker.modes.controller.mode import ZooKeeperMode

__all__ = ["ZooKeeperMode"]
