"""Groups and transactions, also while brokers do not answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import Node, TopicPartition
from minikafka.client.administration.group_admin import (
    GroupDescription,
    GroupListing,
    MemberDescription,
)
from minikafka.client.administration.group_offsets import OffsetAndMetadata
from minikafka.client.administration.results import Outcome
from minikafka.client.administration.transaction_admin import (
    DescribedProducers,
    DescribeTransactionsResult,
    ProducerState,
    TransactionDescription,
    TransactionListing,
)
from minikafka.tools.console.context import Asked
from minikafka.tools.console.views.groups import list_groups, show_group
from minikafka.tools.console.views.open_transactions import HANGING, list_transactions

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
AWAY = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no broker is its coordinator")
OK = Outcome(ErrorCode.NONE)


class StubConsole:
    """A console whose client and grid are values. `silent`: groups and ids whose coordinators do not answer."""

    def __init__(self) -> None:
        row = [1, 0, [1], [1], [], 10, 10, 0, [], [], None]
        rows = {"t-0": [*row[:10], 4], "t-1": [None, *row[1:]]}
        self.watch = SimpleNamespace(grid=SimpleNamespace(rows=rows), ready=self._ready)
        self.client = SimpleNamespace(groups=self, transactions=self)
        self.observed = SimpleNamespace(sources=self._no_sources)
        self.silent: set[str] = set()

    async def _ready(self) -> None: ...

    def _no_sources(self) -> Any:
        raise OSError("no ledger")

    async def list_by_coordinator(self) -> dict[int, list[GroupListing]]:
        return {
            1: [GroupListing("g", "consumer", "Stable")],
            2: [GroupListing("away", "consumer", "Empty")],
        }

    async def describe(self, names: list[str]) -> dict[str, Any]:
        if self.silent & set(names):
            raise AWAY
        found: dict[str, Any] = {}
        for name in names:
            if name.startswith("tx"):
                one = TransactionDescription(name, 1, 7, 0, "Ongoing", 60_000, 5, (T0,))
                found[name] = DescribeTransactionsResult(OK, one)
            else:
                member = MemberDescription("m", None, "client", "/h", (T0, T1))
                node = Node(1, "h", 9, None)
                found[name] = GroupDescription(name, "Stable", "consumer", "range", node, (member,))
        return found

    async def offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        if group in self.silent:
            raise AWAY
        return {T0: OffsetAndMetadata(7)}

    async def list_those_that_answer(self, states: object) -> list[TransactionListing]:
        return [
            TransactionListing("tx", 1, 7, "Ongoing"),
            TransactionListing("tx2", 2, 8, "Ongoing"),
        ]

    async def describe_producers(self, partitions: list[TopicPartition]) -> dict[Any, Any]:
        assert partitions == [T0], "only partitions that are held back"
        producers = (ProducerState(7, 0, 0, 1, 2, 4), ProducerState(9, 3, 0, 1, 2, 6))
        return {T0: DescribedProducers(OK, producers)}


@pytest.fixture
def console() -> Any:
    return StubConsole()


async def test_groups_of_a_silent_coordinator_stay_listed_without_details(console: Any) -> None:
    console.silent = {"away"}
    rows = {row["group"]: row for row in await list_groups(console, Asked({}))}
    assert (rows["g"]["members"], rows["g"]["lag"], rows["g"]["coordinator"]) == (1, 3, 1)
    assert (rows["away"]["state"], rows["away"]["members"], rows["away"]["lag"]) == (
        "Empty",
        None,
        None,
    )


async def test_group_shows_partitions_with_and_without_a_commit(console: Any) -> None:
    found = await show_group(console, Asked({"group": "g"}))
    assert [(row["partition"], row["committed"], row["lag"]) for row in found["offsets"]] == [
        (0, 7, 3),
        (1, None, None),
    ]
    assert {row["member"] for row in found["offsets"]} == {"m"}
    assert found["unseen"] == []


async def test_group_of_a_silent_coordinator_says_why(console: Any) -> None:
    console.silent = {"g"}
    found = await show_group(console, Asked({"group": "g"}))
    assert (found["state"], found["members"]) == (None, [])
    assert found["unseen"] == [str(AWAY)]


async def test_transaction_that_no_coordinator_knows_hangs(console: Any) -> None:
    console.silent = {"tx2"}
    rows = await list_transactions(console, Asked({}))
    assert [(row["transactional_id"], row["state"]) for row in rows] == [
        (None, HANGING),
        ("tx", "Ongoing"),
    ]
    held = {row["producer_id"]: row["holds_back"] for row in rows}
    assert held[7] == [
        {"partition": "t-0", "start_offset": 4, "last_stable_offset": 4, "high_watermark": 10}
    ]
    assert [one["start_offset"] for one in held[9]] == [6]
