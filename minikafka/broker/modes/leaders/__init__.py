"""The mode in which each partition is coordinated by its leader, over ZooKeeper and without a controller.

`minikafka/deciders/leaders/` decides, and this package carries out.
"""

from minikafka.broker.modes.leaders.mode import LeadersMode

__all__ = ["LeadersMode"]
