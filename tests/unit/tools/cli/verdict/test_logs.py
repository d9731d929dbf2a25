"""The logs that a verdict reads from leaders which run."""

from __future__ import annotations

from typing import Any

import pytest
from support.storage.replica_logs import batch

from minikafka.base.model import TopicPartition
from minikafka.client.client import FetchedBatches
from minikafka.tools.cluster.observation.access import BrokerAccess
from minikafka.tools.verdict import logs

TP = TopicPartition("t", 0)
RECORDS = batch([b"a"], 0)


class NewLeaders:
    """A cluster whose leader was a follower until now: it has the record, and does not know that it is committed.

    It serves nothing until it knows, and a request for the latest offset waits until then (KIP-207). `elections`: the
    number of such leaders. The next one is elected when the latest offset has been told.
    """

    def __init__(self, elections: int) -> None:
        self._elections = elections
        self._high_watermark = 0

    async def __aenter__(self) -> NewLeaders:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def list_topics(self) -> list[str]:
        return [TP.topic]

    async def list_offsets(
        self, topic: str, at: str, partitions: list[int] | None = None
    ) -> dict[int, int]:
        if at == "earliest":
            return {0: 0}
        self._elections -= 1
        self._high_watermark = 0 if self._elections else 1
        return {0: 1}

    async def fetch_batches(self, topic: str, partition: int, offset: int) -> FetchedBatches:
        records = RECORDS if offset < self._high_watermark else b""
        return FetchedBatches(records, self._high_watermark, 0)


@pytest.mark.parametrize("elections", [1, 2])
async def test_committed_record_is_read_from_a_leader_that_was_elected_just_now(
    monkeypatch: pytest.MonkeyPatch, elections: int
) -> None:
    cluster = NewLeaders(elections)

    def client(*_: Any, **__: Any) -> NewLeaders:
        return cluster

    monkeypatch.setattr(logs, "Client", client)
    found = await logs.read(BrokerAccess("", None), [TP.topic], [])
    assert not found.unreadable
    assert [one.value for one in found.replicas[TP][logs.LEADER]] == ["a"]
