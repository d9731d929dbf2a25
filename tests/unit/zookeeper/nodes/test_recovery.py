"""The nodes of a cluster that is rebuilt, after an interruption."""

from __future__ import annotations

import pytest

from minikafka.base.coordination import MODES
from minikafka.base.errors import OutcomeUnknown
from minikafka.runtime.tasks import TaskRegistry
from minikafka.simulation.zookeeper import ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.tools.cluster.recovery.plan import RecoveredPartition, RecoveredTopic
from minikafka.zookeeper.nodes import ids, layout, recovery

CLUSTER = "iDeNtItYiDeNtItYiDeNtA"
TOPICS = [RecoveredTopic("t", b"i" * 16, {0: RecoveredPartition((1, 2), (1,), 1_000)}, {})]


@pytest.mark.parametrize("mode", MODES)
async def test_interrupted_recovery_is_repeated_when_only_the_topics_were_lost(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """With `/cluster/id`, the half of the topics that is written would look like a cluster that lost nothing."""
    zookeeper = ZooKeeperInMemory()
    zookeeper.put(layout.CLUSTER_ID, layout.encode_cluster_id(CLUSTER))
    await zookeeper.start()
    client = InMemoryClient(zookeeper, tasks=TaskRegistry(lambda *_: None))
    await client.start()

    async def interrupted(operations: object) -> None:
        raise OutcomeUnknown("interrupted")

    with monkeypatch.context() as patched:
        patched.setattr(client, "multi", interrupted)
        with pytest.raises(OutcomeUnknown):
            await recovery.write(client, mode, CLUSTER, TOPICS, 1_001, (0, 999))
    assert await ids.stored(client) is None
    await recovery.write(client, mode, CLUSTER, TOPICS, 1_001, (0, 999))
    assert await ids.stored(client) == layout.encode_cluster_id(CLUSTER)
    assert await recovery.has_topics(client)
    await client.close()
    await zookeeper.close()
