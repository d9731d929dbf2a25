"""The reasons why something makes no progress, each as one sentence, for commands that wait.

Invariant: a reason is a leaf of the findings of `why`, or a root cause of the whole cluster, so that a command that
waits says the same as `why`, `status` and `cluster health`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock, Rng
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.explain.finding import leaves
from minikafka.tools.explain.gather import LocalSources, gather
from minikafka.tools.explain.why import explain

SHOWN_MAX: Final = 3
"""Maximum number of reasons in one sentence."""


async def why_partition_waits(
    found: LocalCluster, tp: TopicPartition, clock: Clock, rng: Rng, where: str = ""
) -> str:
    """Return why clients, replicas or the controller cannot use the partition; "" if no problem is found."""
    evidence = await gather(LocalSources(found, clock, rng, where), tp)
    return joined(leaves(finding for finding in explain(evidence) if finding.is_problem))


async def why_cluster_waits(found: LocalCluster, clock: Clock, rng: Rng, where: str = "") -> str:
    """Return the root causes of the problems of the whole cluster; "" if no problem is found."""
    causes = await LocalSources(found, clock, rng, where).causes()
    return joined(cause.sentence for cause in causes)


def joined(reasons: Iterable[str]) -> str:
    """Return the reasons as one text, without repetition; at most SHOWN_MAX."""
    found: Sequence[str] = list(dict.fromkeys(reasons))
    more = [f"{len(found) - SHOWN_MAX} more reasons"] if len(found) > SHOWN_MAX else []
    return ", and ".join([*found[:SHOWN_MAX], *more])
