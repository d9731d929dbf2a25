"""What a broker tells the controller through ZooKeeper: a sequential node, which the controller reads and deletes.

Invariant: it is told at least once, unless the broker goes first; a second copy does no harm.
"""

from __future__ import annotations

from minikafka.base.errors import Closed, NotConnected, OutcomeUnknown, StaleSession
from minikafka.base.ports import Coordination


async def notify(coordination: Coordination, prefix: str, data: bytes) -> None:
    """Create the node, in whichever session there is, until it is certain that it was; at most until `close`."""
    while True:
        try:
            await coordination.connected()
            await coordination.create(prefix, data, sequential=True)
            return
        except Closed:
            return
        except (NotConnected, OutcomeUnknown, StaleSession):
            continue
