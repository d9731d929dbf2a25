"""The requests in the queues of brokers, as raw bytes, and the order of their names."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.model import TopicPartition
from minikafka.deciders.leaders.model import FROM_ADMINISTRATOR, Operation, StateChange
from minikafka.simulation.zookeeper import ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.zookeeper.nodes.faults import Faults
from minikafka.zookeeper.nodes.leaders import layout, queues

TP = TopicPartition("foo", 0)
ID = bytes(range(16))
QUEUE = "/leaders/brokers/state/2"
START = (
    b'{"operation":"start-replica","topic":"foo","topic_id":"AAECAwQFBgcICQoLDA0ODw",'
    b'"partition":0,"epoch":10,"sender":0}'
)


@pytest.fixture
async def zookeeper() -> InMemoryClient:
    zookeeper = InMemoryClient(ZooKeeperInMemory())
    await zookeeper.start()
    zookeeper.server.put(QUEUE)
    return zookeeper


@pytest.mark.row("C11")
async def test_request_is_one_line_of_json_in_a_sequential_node(zookeeper: InMemoryClient) -> None:
    request = StateChange(Operation.START, TP, ID, 10, 0)
    await zookeeper.multi([queues.entry(2, request), queues.entry(2, request)])
    names, _ = await zookeeper.children(QUEUE)
    assert names == ["q-0000000000", "q-0000000001"]
    assert (await zookeeper.get(f"{QUEUE}/{names[1]}")).data == START
    assert await queues.read(zookeeper, 2, names, Faults()) == dict.fromkeys(names, request)


@pytest.mark.parametrize(
    "request_",
    [
        StateChange(Operation.START, TP, ID, FROM_ADMINISTRATOR, FROM_ADMINISTRATOR),
        StateChange(Operation.CLOSE, TP, None, 3, 1),
        StateChange(Operation.RESCAN, TopicPartition("", -1), None, -1, -1),
    ],
)
def test_request_is_decoded_as_it_was_encoded(request_: StateChange) -> None:
    assert layout.decode_request(layout.encode_request(request_)) == request_


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        START[:-1],
        START.replace(b"start-replica", b"format-disk"),
        START.replace(b'"start-replica"', b"[1]"),
        START.replace(b'"foo"', b'"../foo"'),
        START.replace(b'"foo"', b"null"),
        START.replace(b'"AAECAwQFBgcICQoLDA0ODw"', b'"AAEC"'),
        START.replace(b'"AAECAwQFBgcICQoLDA0ODw"', b"7"),
        START.replace(b'"partition":0', b'"partition":-1'),
        START.replace(b'"epoch":10', b'"epoch":-2'),
        START.replace(b'"epoch":10', b'"epoch":true'),
        START.replace(b'"epoch":10', b'"epoch":1e3'),
        START.replace(b',"sender":0', b""),
    ],
)
async def test_unreadable_request_is_reported_and_those_behind_it_are_read(
    zookeeper: InMemoryClient, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    zookeeper.server.put(f"{QUEUE}/q-0000000000", text)
    zookeeper.server.put(f"{QUEUE}/q-0000000001", START)
    with caplog.at_level(logging.ERROR):
        read = await queues.read(
            zookeeper, 2, ["q-0000000000", "q-0000000001", "q-0000000002"], Faults()
        )
    assert read == {
        "q-0000000000": None,
        "q-0000000001": StateChange(Operation.START, TP, ID, 10, 0),
    }
    assert f"{QUEUE}/q-0000000000 is not readable" in caplog.text


@pytest.mark.parametrize(
    "names",
    [
        ["q-0000000009", "q-0000000010"],
        ["q-2147483646", "q-2147483647", "q--2147483648", "q--2147483647"],
        ["q--000000010", "q--000000009", "q--000000001", "q-0000000000", "q-0000000001"],
    ],
)
def test_entries_are_in_the_order_of_their_creation_when_their_numbers_start_again(
    names: list[str],
) -> None:
    assert queues.in_order(2, reversed(names), Faults()) == names
    assert queues.in_order(2, [], Faults()) == []


@given(
    st.integers(0, 2**32 - 1), st.lists(st.integers(0, 2**30), min_size=1, unique=True), st.data()
)
def test_entries_are_in_the_order_of_their_creation_from_any_number(
    first: int, steps: list[int], data: st.DataObject
) -> None:
    numbers = ((first + step) % 2**32 for step in sorted(steps))
    names = [f"q-{number - 2**32 if number >= 2**31 else number:010d}" for number in numbers]
    assert layout.in_order(data.draw(st.permutations(names))) == names


def test_names_that_zookeeper_did_not_make_are_reported_and_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    forged = ["close", "q-", "q-x", "q-99999999999", "q-4294967296", "q-2147483648", "q-1\n"]
    with caplog.at_level(logging.ERROR):
        assert queues.in_order(2, [*forged, "q-0000000003"], Faults()) == ["q-0000000003"]
    assert len(caplog.records) == len(forged)


def test_brokers_with_a_queue_are_those_with_a_number_as_name() -> None:
    assert queues.brokers(["0", "12", "012", "-1", "x"], Faults()) == [0, 12]
