"""The controller: every broker takes part in elections, and the winner is the active controller.

`controller.py` takes part in elections, and runs a term after each election that this broker wins. `term.py` is
one term, from the election to the resignation. `store.py` reads and writes in ZooKeeper for the term. The writes of
a term fail as soon as another controller is elected. The decisions are made in `deciders.controller`, which does no
I/O. Invariant: a term that has ended writes and sends nothing.
"""

from minikafka.broker.modes.controller.terms.controller import ZooKeeperController

__all__ = ["ZooKeeperController"]
