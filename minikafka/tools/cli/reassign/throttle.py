"""The replication throttle of a reassignment, as Kafka's own tool sets and removes it (KIP-73).

Invariant: `remove_throttle` removes what `set_throttle` sets: two rates per broker, two replica lists per topic.
"""

from __future__ import annotations

import asyncio
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from minikafka.base.config.keys import LONG_MAX
from minikafka.base.errors import KafkaError
from minikafka.base.model import BrokerId, ReplicaAssignment, TopicPartition
from minikafka.client.administration.admin import Admin
from minikafka.client.administration.results import Outcome, Resource, ResourceType
from minikafka.tools.cli.arguments.placement import Plan
from minikafka.tools.cli.terminal.progress import size

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LOG_DIRS_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
ASK_S: Final = 1.0
"""Time for a broker to answer with its settings: a paused broker must not stop the progress display."""
Limits: TypeAlias = Mapping[TopicPartition, Mapping[str, Mapping[BrokerId, int]]]
"""The rates in bytes per second that limit moves: by partition, key and broker."""
REPLICAS: Final = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)


async def set_throttle(
    admin: Admin,
    plan: Plan,
    current: Mapping[TopicPartition, Sequence[BrokerId]],
    bytes_per_second: int,
) -> dict[BrokerId, Outcome]:
    """Limit the replication rate of the plan's moves; return the brokers that refused, with their errors.

    The current replicas are throttled as sources, the added replicas as destinations. As in Kafka's tool, moves of
    these topics that are in progress get the rate too, because a topic has one list of throttled replicas. Raises
    KafkaError if a setting of a topic is refused; the caller should then start no move.
    """
    topics = {tp.topic for tp in plan}
    moving = await admin.list_reassignments()
    origins = {**current, **{tp: move.origin for tp, move in moving.items()}}
    targets = {tp: move.target for tp, move in moving.items() if tp.topic in topics} | dict(plan)
    sources: defaultdict[str, list[str]] = defaultdict(list)
    destinations: defaultdict[str, list[str]] = defaultdict(list)
    brokers: set[BrokerId] = set()
    for tp, target in sorted(targets.items()):
        before = origins.get(tp, ())
        added = [broker for broker in target if broker not in before]
        if before and added:
            brokers.update(before, added)
            sources[tp.topic] += [f"{tp.partition}:{broker}" for broker in before]
            destinations[tp.topic] += [f"{tp.partition}:{broker}" for broker in added]
    changes: dict[Resource, dict[str, str | None]] = {
        Resource(ResourceType.TOPIC, topic): {
            REPLICAS[0]: ",".join(sources[topic]),
            REPLICAS[1]: ",".join(destinations[topic]),
        }
        for topic in sources
    }
    rates: dict[str, str | None] = dict.fromkeys(RATES, str(bytes_per_second))
    changes |= {_broker(broker): rates for broker in sorted(brokers)}
    failed = {}
    for resource, outcome in (await admin.alter_configs(changes)).items():
        if resource.type is ResourceType.BROKER and not outcome.ok:
            failed[int(resource.name)] = outcome
        elif not outcome.ok:
            reason = f"throttle of topic {resource.name}: {outcome.reason}"
            raise KafkaError(outcome.code, reason)
    return failed


async def set_log_dirs_throttle(
    admin: Admin, brokers: Iterable[BrokerId], bytes_per_second: int
) -> None:
    """Limit the moves between the log directories of these brokers. Raises KafkaError if a broker refuses."""
    changes: dict[Resource, dict[str, str | None]] = {
        _broker(broker): {LOG_DIRS_RATE: str(bytes_per_second)} for broker in sorted(brokers)
    }
    for resource, outcome in (await admin.alter_configs(changes)).items():
        if not outcome.ok:
            raise KafkaError(outcome.code, f"throttle of broker {resource.name}: {outcome.reason}")


async def remove_throttle(admin: Admin, topics: Iterable[str]) -> bool:
    """Remove all throttles from live brokers and from these topics; return True if there was a throttle.

    Do nothing while any partition of the cluster is being moved.
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


async def limits(
    admin: Admin, active: Mapping[TopicPartition, ReplicaAssignment]
) -> dict[TopicPartition, dict[str, dict[BrokerId, int]]]:
    """Return the rates in bytes per second that limit each move: by key and broker. Moves without a limit are left out.

    The origin replicas are limited as leaders, the added replicas as followers. Brokers that do not answer are left
    out.
    """
    topics = {tp.topic: Resource(ResourceType.TOPIC, tp.topic) for tp in active}
    ids = sorted({replica for moving in active.values() for replica in moving.replicas})
    resources = [*topics.values(), *map(_broker, ids)]
    found = await asyncio.gather(*(_values(admin, resource) for resource in resources))
    values = dict(zip(resources, found, strict=True))
    limited: dict[TopicPartition, dict[str, dict[BrokerId, int]]] = {}
    for tp, moving in active.items():
        for key, replicas_key, brokers in zip(
            RATES, REPLICAS, (moving.origin, moving.adding), strict=True
        ):
            named = values[topics[tp.topic]].get(replicas_key, "").split(",")
            for broker in brokers:
                rate = int(values[_broker(broker)].get(key) or LONG_MAX)
                if rate < LONG_MAX and ("*" in named or f"{tp.partition}:{broker}" in named):
                    limited.setdefault(tp, {}).setdefault(key, {})[broker] = rate
    return limited


async def _values(admin: Admin, resource: Resource) -> dict[str, str]:
    """Return the settings of a topic or broker; {} if they cannot be read within ASK_S."""
    try:
        async with asyncio.timeout(ASK_S):
            found = (await admin.describe_configs([resource]))[resource]
    except (KafkaError, TimeoutError):
        return {}
    return {setting.name: setting.value or "" for setting in found.entries}


def limit_note(limited: Mapping[str, Mapping[BrokerId, int]]) -> str:
    """Return the lowest rate that limits a move, with its key. `limited`: the rates of one move (`limits`)."""
    key, rates = min(limited.items(), key=lambda item: min(item[1].values()))
    return f"throttled to {size(min(rates.values()))}/s by {key}"


def raising_lines(
    limited: Iterable[Mapping[str, Mapping[BrokerId, int]]], target: Sequence[str]
) -> list[str]:
    """Return the commands that raise the rates of moves. `target`: the options that name the cluster."""
    keys: defaultdict[BrokerId, set[str]] = defaultdict(set)
    for one in limited:
        for key, rates in one.items():
            for broker in rates:
                keys[broker].add(key)
    options = "".join(f" {word}" for word in map(shlex.quote, target))
    return [
        f"  to raise the throttle: minikafka configs set {' '.join(f'{key}=BYTES' for key in sorted(names))} "
        f"--broker {broker}{options}"
        for broker, names in sorted(keys.items())
    ]


def _throttled(keys: Collection[str]) -> list[str]:
    return [key for key in (*RATES, LOG_DIRS_RATE, *REPLICAS) if key in keys]


def _is_own(source: str) -> bool:
    """True if the source of a setting is the dynamic configuration of one topic or one broker, not a default."""
    return source in ("DYNAMIC_TOPIC_CONFIG", "DYNAMIC_BROKER_CONFIG")


def _broker(broker: BrokerId) -> Resource:
    return Resource(ResourceType.BROKER, str(broker))
