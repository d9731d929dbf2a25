"""The replication throttle of a reassignment, as Kafka's own tool sets and removes it (KIP-73).

Invariant: what `put` sets, `lift` removes: two rates of each broker, two replica lists of each topic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from minikafka.base.errors import KafkaError
from minikafka.base.model import BrokerId, TopicPartition
from minikafka.cli.placement import Plan
from minikafka.client.admin import Admin
from minikafka.client.admin_results import Outcome, Resource, ResourceType

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICAS: Final = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)


async def put(
    admin: Admin,
    plan: Plan,
    current: Mapping[TopicPartition, Sequence[BrokerId]],
    bytes_per_second: int,
) -> dict[BrokerId, Outcome]:
    """Bound what the moves of the plan may read and write; the brokers that could not be told, and why.

    Throttled are the replicas of now as sources, and those that come as destinations. Raises KafkaError
    when a topic's part is refused; then no move should begin.
    """
    sources: defaultdict[str, list[str]] = defaultdict(list)
    coming: defaultdict[str, list[str]] = defaultdict(list)
    brokers: set[BrokerId] = set()
    for tp, target in plan.items():
        before = current.get(tp, ())
        added = [broker for broker in target if broker not in before]
        if before and added:
            brokers.update(before, added)
            sources[tp.topic] += [f"{tp.partition}:{broker}" for broker in before]
            coming[tp.topic] += [f"{tp.partition}:{broker}" for broker in added]
    changes: dict[Resource, dict[str, str | None]] = {
        Resource(ResourceType.TOPIC, topic): {
            REPLICAS[0]: ",".join(sources[topic]),
            REPLICAS[1]: ",".join(coming[topic]),
        }
        for topic in sources
    }
    rates: dict[str, str | None] = dict.fromkeys(RATES, str(bytes_per_second))
    changes |= {_broker(broker): rates for broker in sorted(brokers)}
    missed = {}
    for resource, outcome in (await admin.alter_configs(changes)).items():
        if resource.type is ResourceType.BROKER and not outcome.ok:
            missed[int(resource.name)] = outcome
        elif not outcome.ok:
            reason = f"throttle of topic {resource.name}: {outcome.message or 'refused'}"
            raise KafkaError(outcome.code, reason)
    return missed


async def lift(admin: Admin, topics: Iterable[str]) -> bool:
    """Remove every throttle from all live brokers and these topics, unless anything still moves.

    Whether there was one to remove.
    """
    if await admin.list_reassignments():
        return False
    brokers = (await admin.describe_cluster()).brokers
    known = await admin.describe_topics(sorted(set(topics)))
    resources = [_broker(broker) for broker in sorted(brokers)]
    resources += [Resource(ResourceType.TOPIC, topic) for topic in known]
    changes: dict[Resource, dict[str, str | None]] = {}
    for resource, settings in (await admin.describe_configs(resources)).items():
        keys = _throttled({s.name for s in settings.entries if s.value and _is_own(s.source.name)})
        if keys:
            changes[resource] = dict.fromkeys(keys, None)
    await admin.alter_configs(changes)
    return bool(changes)


def _throttled(keys: Collection[str]) -> list[str]:
    return [key for key in (*RATES, *REPLICAS) if key in keys]


def _is_own(source: str) -> bool:
    """Whether it was set while the cluster ran, for this resource alone."""
    return source in ("DYNAMIC_TOPIC_CONFIG", "DYNAMIC_BROKER_CONFIG")


def _broker(broker: BrokerId) -> Resource:
    return Resource(ResourceType.BROKER, str(broker))
