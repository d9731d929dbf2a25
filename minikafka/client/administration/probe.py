"""A check of which brokers and partition leaders answer a client's request.

Metadata still lists a dead broker until its session expires; only a response shows that a broker is alive.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.client.administration.results import Outcome
from minikafka.client.metadata import ClusterInfo, TopicInfo, error_code
from minikafka.client.network import Address, Network, request
from minikafka.kafka.wire import versions

TIMEOUT_MS: Final = 1_000
"""Time for one broker to answer."""
_LATEST: Final = -1


class Probed(NamedTuple):
    """The outcomes of a probe: for each broker, and for each partition that these brokers lead."""

    brokers: dict[int, Outcome]
    partitions: dict[TopicPartition, Outcome]


async def probe(
    network: Network, cluster: ClusterInfo, topics: Sequence[TopicInfo], ids: Iterable[int]
) -> Probed:
    """Ask each broker in `ids` once, all concurrently, for the end offsets of the partitions that it leads."""
    led: defaultdict[int, dict[TopicPartition, int]] = defaultdict(dict)
    for topic in topics:
        for number, info in topic.partitions.items():
            led[info.leader][TopicPartition(topic.name, number)] = info.leader_epoch
    nodes = [cluster.brokers[id_] for id_ in sorted(ids)]
    answers = await asyncio.gather(
        *(_ask(network, Address(node.host, node.port), led[node.id]) for node in nodes)
    )
    found = Probed({}, {})
    for node, (outcome, partitions) in zip(nodes, answers, strict=True):
        found.brokers[node.id] = outcome
        found.partitions.update(partitions)
    return found


async def _ask(
    network: Network, address: Address, led: Mapping[TopicPartition, int]
) -> tuple[Outcome, dict[TopicPartition, Outcome]]:
    try:
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            response = await network.call(
                address, versions.LIST_OFFSETS, TIMEOUT_MS, _offsets_request(led)
            )
    except TimeoutError:
        failed = Outcome(ErrorCode.REQUEST_TIMED_OUT, f"no answer within {TIMEOUT_MS / 1000:g} s")
    except OSError as error:
        failed = Outcome(ErrorCode.NETWORK_EXCEPTION, error.strerror or str(error))
    else:
        return Outcome(ErrorCode.NONE), {
            TopicPartition(topic.name, answer.partition_index): Outcome(
                error_code(answer.error_code)
            )
            for topic in response.topics
            for answer in topic.partitions
        }
    return failed, dict.fromkeys(led, failed)


def _offsets_request(led: Mapping[TopicPartition, int]) -> Any:
    """Return a ListOffsets request for the end offsets of the partitions in `led`.

    `led`: leader epoch by partition. If `led` is empty, the request names no partition.
    """
    topics: defaultdict[str, list[dict[str, int]]] = defaultdict(list)
    for tp, epoch in led.items():
        topics[tp.topic].append(
            {
                "partition_index": tp.partition,
                "current_leader_epoch": epoch,
                "timestamp": _LATEST,
            }
        )
    return request(
        versions.LIST_OFFSETS,
        replica_id=-1,
        isolation_level=0,
        topics=[{"name": name, "partitions": rows} for name, rows in topics.items()],
    )
