"""The costs of reads on their way from tasks to the driver."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from minikafka.base.model import TopicPartition
from minikafka.spark.progress import ReadCosts
from minikafka.spark.source import costs
from minikafka.spark.source.costs import PROPERTY, Costs, CountingPort, send
from minikafka.spark.source.fetch import Block
from minikafka.spark.source.ranges import OffsetRange
from minikafka.spark.wire.protocol import FetchResponse


class Context:
    """The part of a SparkContext that is needed."""

    def __init__(self) -> None:
        self.properties: dict[str, str | None] = {}
        self.setLocalProperty = self.properties.__setitem__

    def getConf(self) -> dict[str, str]:  # noqa: N802  Spark's name
        return {"spark.driver.host": "127.0.0.1"}


def test_costs_of_each_run_are_added_up_and_foreign_datagrams_are_ignored():
    context = Context()
    with ReadCosts(SimpleNamespace(sparkContext=context)) as found:
        text = context.properties[PROPERTY]
        address = CountingPort(*json.loads(text))
        for run, size in (("a", 100), ("b", 7), ("a", 11)):
            send(text, run, Costs(size, size / 2))
        send(json.dumps(address._replace(token="other")), "a", Costs(1_000, 1.0))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for content in (
                b"",
                b"{",
                b"[1]",
                b'["", "a", "x", null]',
                b"\xff" * 2_000,
                b"[" * 1_024,
            ):
                stranger.sendto(content, (address.host, address.port))
        send(text, "c", Costs(1, 1.0))
    assert context.properties[PROPERTY] is None
    assert [found.of(run) for run in ("a", "b", "c")] == [
        Costs(111, 55.5),
        Costs(7, 3.5),
        Costs(1, 1.0),
    ]


def test_counting_ends_although_its_last_datagram_was_lost():
    context = Context()
    found = ReadCosts(SimpleNamespace(sparkContext=context))
    with ExitStack() as body:
        body.enter_context(found)
        text = context.properties[PROPERTY]
        with found._lock:  # nothing is received, so the port cannot take all of these
            for _ in range(5_000):
                send(text, "a", Costs(1, 1.0))
            ending = threading.Thread(target=body.pop_all().close)
            ending.start()
            ending.join(0.2)
        ending.join(60)
    assert not ending.is_alive()
    assert 0 < found.of("a").bytes < 5_000


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid"])
def test_read_does_not_fail_if_the_driver_cannot_be_reached(host):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    send(json.dumps(CountingPort(host, port, "t")), "a", Costs(1, 1.0))


def test_bytes_of_blocks_and_the_time_before_each_are_counted(monkeypatch):
    times = iter([0.0, 2.0, 10.0, 10.5, 20.0, 20.25])
    monkeypatch.setattr(costs.time, "perf_counter", lambda: next(times))
    wanted = OffsetRange(TopicPartition("t", 0), 0, 2)
    blocks = [
        Block(wanted, 0, FetchResponse(0, 2, 0, (), memoryview(bytes(size)))) for size in (30, 4)
    ]
    found = Costs()
    assert list(found.counting(blocks)) == blocks
    assert found == Costs(34, 2.75)
