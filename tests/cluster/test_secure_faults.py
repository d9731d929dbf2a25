"""Faults of connections in a secure cluster: the proxy passes TLS on, so hostnames and certificates still count."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support.clusters.running_cluster import eventually

from minikafka.tools.cluster import ClusterError, LocalCluster
from minikafka.tools.cluster.faults.fault import Fault

LATER_MS = 100
TOPIC = "events"


@pytest.fixture(scope="module")
def started() -> Iterator[LocalCluster]:
    cluster = LocalCluster(3, secure=True, faults=True, config={"min.insync.replicas": 2})
    asyncio.run(cluster.start())
    admin = AdminClient(cluster.client_config("librdkafka"))
    admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(30)
    yield cluster
    asyncio.run(cluster.stop())


@pytest.fixture
async def cluster(started: LocalCluster) -> AsyncIterator[LocalCluster]:
    yield started
    await started.start()
    await started.heal()
    await started.wait_until_in_sync()


class Writer:
    """A producer that logs in over TLS. `acked`: the values that brokers have acknowledged."""

    def __init__(self, cluster: LocalCluster) -> None:
        keys = cluster.client_config("librdkafka")
        self._producer = Producer({**keys, "acks": "all", "enable.idempotence": True})
        self.acked: list[bytes] = []

    def send(self, value: bytes) -> None:
        def report(error: object, _: object) -> None:
            assert error is None
            self.acked.append(value)

        self._producer.produce(TOPIC, value, on_delivery=report)
        self._producer.poll(0)

    async def write(self, value: bytes) -> None:
        """Send a record, and wait until it is acknowledged."""
        self.send(value)
        assert await asyncio.to_thread(self._producer.flush, 60) == 0


def read(cluster: LocalCluster, count: int) -> list[bytes]:
    """Return the last `count` values of the topic."""
    keys = cluster.client_config("librdkafka")
    consumer = Consumer({**keys, "group.id": "unused", "enable.auto.commit": False})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), 30)
        consumer.assign([TopicPartition(TOPIC, 0, end - count)])
        return [message.value() for message in consumer.consume(count, 30)]
    finally:
        consumer.close()


async def has_hit(fault: Fault) -> bool:
    await fault.count()
    return fault.has_hit


async def test_clients_over_tls_wait_for_the_end_of_a_cut_also_the_second_time(
    cluster: LocalCluster,
) -> None:
    writer = Writer(cluster)
    await writer.write(b"first")
    leader = await cluster.leader_of(TOPIC, 0)
    for value in (b"1", b"2"):
        async with await cluster.cut_clients(leader) as fault:
            written = asyncio.create_task(writer.write(value))
            await eventually(lambda fault=fault: has_hit(fault))
            await cluster.state()  # the tools of the cluster are not harmed
            assert not written.done()
        await written
    assert await asyncio.to_thread(read, cluster, 3) == [b"first", b"1", b"2"]


async def test_delay_and_reset_act_on_connections_over_tls(cluster: LocalCluster) -> None:
    writer, loop = Writer(cluster), asyncio.get_running_loop()
    await writer.write(b"before")
    async with await cluster.delay("clients", await cluster.leader_of(TOPIC, 0), LATER_MS):
        begun = loop.time()
        await writer.write(b"late")
        assert (loop.time() - begun) * 1_000 >= 2 * LATER_MS
    for value in (b"a", b"b"):
        reset = await cluster.reset("clients", await cluster.leader_of(TOPIC, 0))
        assert reset.hits["connections"] >= 1
        await writer.write(value)
    assert await asyncio.to_thread(read, cluster, 4) == [b"before", b"late", b"a", b"b"]


@pytest.mark.parametrize("link", ["control", "fetch", "zookeeper"])
async def test_brokers_recover_from_a_cut_of_each_kind_of_link_over_tls(
    cluster: LocalCluster, link: str
) -> None:
    writer = Writer(cluster)
    leader = await cluster.leader_of(TOPIC, 0)
    other = "zookeeper" if link == "zookeeper" else next(id_ for id_ in (1, 2, 3) if id_ != leader)
    async with await cluster.cut(leader, other, link=link) as fault:
        writer.send(b"during")
        await eventually(lambda: has_hit(fault))
    await writer.write(b"after")
    assert await asyncio.to_thread(read, cluster, 2) == [b"during", b"after"]
    assert writer.acked == [b"during", b"after"]


async def test_write_over_tls_is_acknowledged_after_the_leader_was_killed(
    cluster: LocalCluster,
) -> None:
    writer = Writer(cluster)
    for value in (b"first", b"second"):
        await writer.write(b"before " + value)
        await cluster.kill(await cluster.leader_of(TOPIC, 0))
        await writer.write(value)
        await cluster.start()
        await cluster.wait_until_in_sync()
    assert await asyncio.to_thread(read, cluster, 4) == writer.acked


async def test_certificate_behind_the_proxy_is_checked_by_name_and_authority(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    ca = str(cluster.client_config("librdkafka")["ssl.ca.location"])
    host, _, port = cluster.bootstrap.split(",")[0].rpartition(":")

    async def shake_hands(name: str, authority: str | None) -> None:
        context = ssl.create_default_context(cafile=authority)
        _, writer = await asyncio.open_connection(
            host, int(port), ssl=context, server_hostname=name
        )
        writer.close()
        await writer.wait_closed()

    await shake_hands(host, ca)
    with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
        await shake_hands("127.0.0.9", ca)
    with pytest.raises(
        ssl.SSLCertVerificationError, match=r"unable to get local issuer|self-signed"
    ):
        await shake_hands(host, None)


async def test_requests_under_tls_cannot_be_counted_and_this_is_said_at_once(
    cluster: LocalCluster,
) -> None:
    with pytest.raises(ClusterError, match="clients connect under TLS, which the proxy cannot"):
        await cluster.after("Produce")
