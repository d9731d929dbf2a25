"""The group coordinator of a broker: the logic in `minikafka.groups`, with its topic, metrics and lags."""

from minikafka.broker.coordinators.groups.lags import GroupLags
from minikafka.broker.coordinators.groups.service import GroupService, offsets_topic

__all__ = ["GroupLags", "GroupService", "offsets_topic"]
