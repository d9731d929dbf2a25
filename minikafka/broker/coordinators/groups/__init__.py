"""The group coordinator of a broker: it runs the logic in `minikafka.groups`.

The logic is pure. This package connects it to the broker's logs, clients, clock and ledger.
"""

from minikafka.broker.coordinators.groups.lags import GroupLags
from minikafka.broker.coordinators.groups.offsets_topic import OffsetsTopic
from minikafka.broker.coordinators.groups.service import GroupService

__all__ = ["GroupLags", "GroupService", "OffsetsTopic"]
