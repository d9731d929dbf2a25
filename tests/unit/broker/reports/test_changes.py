"""What an observer gets who asks for the changes since an earlier answer."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.brokers.hosted import T0, T1, Hosted, state

from minikafka.base.ports import Call
from minikafka.broker.reports import changes
from minikafka.broker.rpc.messages import STATE
from minikafka.client import NewTopic, Record
from minikafka.simulation.cluster import MemoryCluster


@pytest.fixture
async def hosted() -> AsyncIterator[Hosted]:
    async with MemoryCluster(1) as cluster:
        yield Hosted(cluster)


class Observer:
    """One who asks a broker for its state, and then for what has changed."""

    def __init__(self, hosted: Hosted) -> None:
        self.position = ""
        self._hosted = hosted

    async def ask(self) -> tuple[bool, list[int], list[list[object]]]:
        """Return whether the answer is whole, the numbers of the partitions in it, and those that are gone."""
        answer = await self._hosted.broker.on_call(Call(STATE, {"since": self.position}))
        self.position = answer["position"]
        return answer["is_whole"], [row["partition"] for row in answer["replicas"]], answer["gone"]


async def test_answer_has_only_what_has_changed_since_the_one_before(hosted: Hosted) -> None:
    assert await hosted.tell(state(), state(T1)) == [0, 0]
    first, second = Observer(hosted), Observer(hosted)
    assert await first.ask() == (True, [0, 1], [])
    assert await first.ask() == (False, [], [])
    hosted.produce(T1, b"v")
    assert await second.ask() == (True, [0, 1], [])
    assert await first.ask() == (False, [1], []), "another observer has asked before"
    assert await first.ask() == (False, [], [])
    assert await hosted.tell(state(epoch=4)) == [0]
    assert await second.ask() == (False, [0], [])


async def test_removed_replica_is_gone_until_it_is_there_again(hosted: Hosted) -> None:
    assert await hosted.tell(state(), state(T1)) == [0, 0]
    observer, other = Observer(hosted), Observer(hosted)
    await observer.ask()
    await other.ask()
    for _ in range(2):
        assert await hosted.stop(T1, delete=True) == 0
        assert await observer.ask() == (False, [], [["t", 1]])
        assert await hosted.tell(state(T1)) == [0]
        assert await observer.ask() == (False, [1], [])
    assert await other.ask() == (False, [1], [])


@pytest.mark.parametrize("position", ["", "0-1", "nonsense", "1-99999999999999999999"])
async def test_unknown_position_gets_all_replicas(hosted: Hosted, position: str) -> None:
    assert await hosted.tell(state(T0)) == [0]
    observer = Observer(hosted)
    observer.position = position
    assert await observer.ask() == (True, [0], [])
    observer.position = observer.position.replace("-1", "-7")  # of a later answer than any
    assert await observer.ask() == (True, [0], [])


async def test_observer_that_missed_too_many_removals_gets_all_replicas(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "GONE_MAX", 0)
    assert await hosted.tell(state(), state(T1)) == [0, 0]
    observer = Observer(hosted)
    await observer.ask()
    assert await hosted.stop(T1, delete=True) == 0

    assert await observer.ask() == (True, [0], [])
    assert await observer.ask() == (False, [], [])


async def test_question_without_a_position_gets_all_replicas_and_nothing_more(
    hosted: Hosted,
) -> None:
    assert await hosted.tell(state()) == [0]
    for _ in range(2):
        answer = await hosted.broker.on_call(Call(STATE, {}))
        assert [row["partition"] for row in answer["replicas"]] == [0]
        assert "position" not in answer


async def test_observer_gets_counters_and_no_gauges_which_take_long(hosted: Hosted) -> None:
    async with hosted.cluster.client() as client:
        await client.create_topics(NewTopic("t", 1, 1))
        await client.produce("t", [Record(value=b"v")])
    found = (await hosted.broker.on_call(Call(STATE, {"since": ""})))["metrics"]
    whole = (await hosted.broker.on_call(Call(STATE, {})))["metrics"]
    assert found["MessagesInPerSec"] == 1
    assert found["BytesInPerSec"] == whole["BytesInPerSec"] > 0
    assert "BytesOutPerSec" in found
    assert "UnderReplicatedPartitions" in whole.keys() - found.keys()
