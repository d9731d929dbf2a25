"""The metadata of a cluster as each of its brokers shows it, and the contradictions between them.

A broker that is cut off, or a controller that was replaced without noticing it, answers with old metadata. So every
broker is asked, and of each partition the state in the newest leader epoch counts.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import minikafka.client as clients
import minikafka.client.administration.results as administration
import minikafka.client.login as logins
from minikafka.base.coordination import CONTROLLER, LEADERS
from minikafka.base.errors import KafkaError

ASK_MS: Final = 1_000
"""Time for the brokers to answer one question."""
_MODE: Final = "minikafka.coordination"


class BrokerView(NamedTuple):
    """The metadata of one broker. `address`: host:port of the broker."""

    address: str
    info: clients.ClusterInfo
    topics: Sequence[clients.TopicInfo]


async def read_views(
    addresses: Iterable[str], access: logins.Connector | None, timeout_ms: int = ASK_MS
) -> list[BrokerView]:
    """Return the views of the brokers at these addresses, and of all brokers that they name, as far as they answer.

    `access`: how to connect; None: in the clear, without a login. `timeout_ms`: for each broker.
    """
    asked = list(dict.fromkeys(addresses))
    found = await asyncio.gather(*(_view(address, access, timeout_ms) for address in asked))
    views = [view for view in found if view is not None]
    nodes = [node for view in views for node in view.info.brokers.values()]
    named = dict.fromkeys(f"{node.host}:{node.port}" for node in nodes)
    more = await asyncio.gather(
        *(_view(address, access, timeout_ms) for address in named if address not in asked)
    )
    return [*views, *(view for view in more if view is not None)]


async def _view(
    address: str, access: logins.Connector | None, timeout_ms: int
) -> BrokerView | None:
    """Return the view of a broker; None if it does not answer within `timeout_ms`. A paused broker accepts connections.

    Raises NotAdmitted.
    """
    try:
        async with (
            asyncio.timeout(timeout_ms / 1000),
            clients.Client(address, connector=access, api_timeout_ms=timeout_ms) as client,
        ):
            return BrokerView(address, *await client.admin.describe(retries=False))
    except logins.NotAdmitted:
        raise
    except (KafkaError, OSError, TimeoutError):
        return None


def newest(views: Sequence[BrokerView]) -> tuple[clients.ClusterInfo, list[clients.TopicInfo]]:
    """Return the metadata that counts: that of most brokers, with each partition in the newest leader epoch of any."""
    controllers = Counter(view.info.controller_id for view in views)
    base = max(views, key=lambda view: (controllers[view.info.controller_id], _epochs(view)))
    partitions: dict[tuple[str, bytes, int], clients.PartitionInfo] = {}
    for view in (base, *views):
        for topic in view.topics:
            for number, partition in topic.partitions.items():
                key = (topic.name, topic.topic_id, number)
                known = partitions.setdefault(key, partition)
                if partition.leader_epoch > known.leader_epoch:
                    partitions[key] = partition
    return base.info, [
        topic._replace(
            partitions={
                number: partitions[topic.name, topic.topic_id, number]
                for number in topic.partitions
            }
        )
        for topic in base.topics
    ]


def _epochs(view: BrokerView) -> int:
    """Return the sum of all leader epochs: newer metadata have a larger one."""
    return sum(one.leader_epoch for topic in view.topics for one in topic.partitions.values())


def contradictions(views: Sequence[BrokerView], coordination: str) -> Iterator[str]:
    """Yield a sentence about each fact in which the views contradict each other and only one can be right."""
    ids = _grouped((view.address, view.info.cluster_id) for view in views)
    if len(ids) > 1:
        found = "; ".join(f"{', '.join(some)} to {id_}" for id_, some in ids.items())
        yield f"the addresses belong to different clusters: {found}; name the brokers of one cluster"
        return
    known = [view for view in views if view.info.controller_id >= 0]
    controllers = _grouped((view.address, str(view.info.controller_id)) for view in known)
    if len(controllers) > 1 and coordination != LEADERS:
        found = "; ".join(f"{', '.join(some)} names {id_}" for id_, some in controllers.items())
        yield (
            f"the brokers disagree about the controller: {found}; if it lasts, one of them is a zombie: "
            "`minikafka cluster health --data DIR` on their machine compares them with ZooKeeper"
        )


def differing_lists(views: Sequence[BrokerView]) -> Iterator[str]:
    """Yield a note if the brokers list different brokers as alive, which is normal for a moment."""
    lists = _grouped(
        (view.address, ", ".join(map(str, sorted(view.info.brokers)))) for view in views
    )
    if len(lists) > 1:
        found = "; ".join(f"{', '.join(some)}: {ids}" for ids, some in lists.items())
        yield f"the brokers list different brokers as alive: {found}"


def _grouped(pairs: Iterable[tuple[str, str | None]]) -> dict[str | None, list[str]]:
    """Return the addresses of the brokers that give the same answer, by answer."""
    groups: dict[str | None, list[str]] = {}
    for address, said in pairs:
        groups.setdefault(said, []).append(address)
    return groups


async def coordination_of(admin: clients.Admin, info: clients.ClusterInfo) -> str:
    """Return the cluster's coordination mode, from the settings of a broker; CONTROLLER if no broker says it."""
    for broker in info.brokers:
        resource = administration.Resource(administration.ResourceType.BROKER, str(broker))
        try:
            async with asyncio.timeout(ASK_MS / 1000):
                found = (await admin.describe_configs([resource]))[resource]
        except (KafkaError, TimeoutError):
            continue
        if found.outcome.ok:
            values = {setting.name: setting.value for setting in found.entries}
            return values.get(_MODE) or CONTROLLER
    return CONTROLLER
