"""The ZooKeeper coordination mode: the Coordinator port over Kafka's znodes.

`mode.py` is where a broker begins: it joins a cluster and gives the broker its `coordinator.py`. The election
and the work of the active controller are in `broker/zk_controller/`.
"""

from minikafka.broker.zookeeper.mode import ZooKeeperMode

__all__ = ["ZooKeeperMode"]
