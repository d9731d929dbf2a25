"""InspectBroker: brokers tell clients what they tell the commands on their machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.ports import Call
from minikafka.broker.ledger import pages
from minikafka.broker.ledger.reader import about_group, about_topic, merged, parsed_lines
from minikafka.client import Client, NewTopic, Record
from minikafka.client.network import Address
from minikafka.kafka.wire.versions import INSPECT_BROKER, SERVED
from minikafka.simulation.cluster import MemoryCluster

pytestmark = pytest.mark.usefixtures("each_mode")
KEYS = {"offsets_topic_replication_factor": 1, "offsets_topic_num_partitions": 1}


@pytest.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    async with asyncio.timeout(60), MemoryCluster(2, **KEYS) as cluster:
        async with cluster.client() as client:
            await client.create_topics(NewTopic("t", 3, 2), NewTopic("other", 1, 1))
            await client.produce("t", [Record(value=b"x")], partition=0)
        yield cluster


async def ask(client: Client, of: int, question: str, **argument: Any) -> list[bytes]:
    address = Address("127.0.0.1", 9092 + of)
    return await client.inspection.ask(address, question, argument, broker=of, timeout_ms=5_000)


async def test_state_has_what_the_control_plane_tells(cluster: MemoryCluster) -> None:
    async with cluster.client() as client:
        summary, *replicas = map(json.loads, await ask(client, 1, "state"))
    told = await cluster.brokers[1].on_call(Call("state", {}))
    key = lambda row: (row["topic"], row["partition"])  # noqa: E731
    assert sorted(replicas, key=key) == told.pop("replicas")
    assert len(replicas) >= 3
    assert told["links"]["1"]["links"] == [], "no link of a new cluster is broken"
    del told["metrics"], summary["metrics"]  # the request itself is counted
    assert summary == json.loads(json.dumps(told))


async def test_partition_and_group_are_explained_as_by_the_control_plane(
    cluster: MemoryCluster,
) -> None:
    questions = (("explain", {"topic": "t", "partition": 0}), ("explain_group", {"group": "g"}))
    async with cluster.client() as client:
        for question, argument in questions:
            [row] = await ask(client, 0, question, **argument)
            told = await cluster.brokers[0].on_call(Call(question, argument))
            found, expected = json.loads(row), json.loads(json.dumps(told))
            for one in (found, expected):
                one.pop("time", None)
            ages = {"last_fetch_ms", "last_caught_up_ms"}
            followers = [one.get("replica", {}).pop("followers", []) for one in (found, expected)]
            kept = [[{k: v for k, v in f.items() if k not in ages} for f in f_] for f_ in followers]
            assert kept[0] == kept[1]
            assert found == expected


async def test_ledger_comes_in_pages_with_the_lines_about_a_topic_or_a_group(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "PAGE_BYTES", 200)
    await cluster.clock.sleep(1)
    history = cluster.history()
    every = [json.dumps(line, separators=(",", ":")).encode() for line in history]
    async with cluster.client() as client:
        for argument, wanted in (
            ({}, about_topic("")),
            ({"topic": "other"}, about_topic("other")),
            ({"group": "g"}, about_group("g")),
        ):
            ledgers = [[*parsed_lines(await ask(client, b, "ledger", **argument))] for b in (0, 1)]
            found = [(line["broker"], line["n"]) for line in merged(ledgers)]
            expected = {
                (line["broker"], line["n"])
                for line, text in zip(history, every, strict=True)
                if wanted(text)
            }
            assert expected <= set(found)
            assert len(found) == len(set(found))
            named = {line["n"] for ledger in ledgers for line in ledger if line["broker"] == 0}
            assert bool(named) == ("group" not in argument)


@pytest.mark.parametrize(
    ("question", "argument", "words"),
    [
        ("fly", {}, "unknown question 'fly'; known: state, explain"),
        ("explain", {}, "name a topic"),
        ("explain_group", {"group": 1}, "name a group"),
        ("ledger", {"topic": 1}, "topic and group must be texts"),
    ],
)
async def test_wrong_question_is_refused_with_the_reason(
    cluster: MemoryCluster, question: str, argument: dict[str, Any], words: str
) -> None:
    async with cluster.client() as client:
        with pytest.raises(KafkaError, match=words) as raised:
            await ask(client, 0, question, **argument)
        assert raised.value.code is ErrorCode.INVALID_REQUEST


async def test_answer_of_another_broker_at_the_address_is_refused(cluster: MemoryCluster) -> None:
    async with cluster.client() as client:
        with pytest.raises(KafkaError, match="broker 0 answers there"):
            await client.inspection.ask(
                Address("127.0.0.1", 9092), "state", {}, broker=1, timeout_ms=5_000
            )


async def test_plan_is_made_by_the_controller_only(cluster: MemoryCluster) -> None:
    question = {"operation": "kill-broker", "broker": 0}
    found: dict[int, Any] = {}
    async with cluster.client() as client:
        for broker in cluster.brokers:
            try:
                found[broker] = await ask(client, broker, "plan", **question)
            except KafkaError as error:
                found[broker] = error.code
    plans = [rows for rows in found.values() if isinstance(rows, list)]
    if cluster.coordination == "leaders":
        assert plans == []
    else:
        [rows] = plans
        assert {json.loads(row)["kind"] for row in rows} >= {"assumed", "write", "request"}
        assert ErrorCode.NOT_CONTROLLER in found.values()


async def test_broker_that_does_not_list_the_request_is_not_asked(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = {api: bounds for api, bounds in SERVED.items() if api != INSPECT_BROKER}
    monkeypatch.setattr("minikafka.broker.apis.versions.SERVED", served)
    async with cluster.client() as client:
        with pytest.raises(KafkaError, match=r"it is minikafka 0\.1\.0 or Apache Kafka") as raised:
            await ask(client, 0, "state")
    assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION
