"""The controller of this broker, run: candidate in every session, ruler in some of them.

`service.py` campaigns and says who rules; `term.py` is one term in office, from the election to the
resignation; `store.py` is that term's fenced door to ZooKeeper. What is decided, and when, is in
`minikafka.controller`, which never waits. Invariant: a term that ended writes and sends nothing more.
"""

from minikafka.broker.zk_controller.controller import ZooKeeperController

__all__ = ["ZooKeeperController"]
