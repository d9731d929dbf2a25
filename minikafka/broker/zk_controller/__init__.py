"""The controller over ZooKeeper: every broker takes part in elections, and one runs the controller core.

`controller.py` campaigns and runs the terms that were won; `term.py` is one term, from the election to the
resignation; `store.py` has the term's reads and writes in ZooKeeper. A later controller fences these writes. The
decisions are in `minikafka.controller`, which never waits. Invariant: a term that has ended writes and sends nothing.
"""

from minikafka.broker.zk_controller.controller import ZooKeeperController

__all__ = ["ZooKeeperController"]
