"""A power loss of all brokers soon after files and directories were created, renamed or removed.

A name is durable only after an fsync of its directory. With flush.messages=1, everything that was acknowledged must be
there after the restart, whichever of the other changes of names the file system has written.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.clients.group_client import GroupClient
from support.clients.transactional_client import CommittedReader, TransactionalProducer
from support.storage.fsynced_files import FsyncedFiles, RootedStorage

from minikafka.base.model import TopicPartition
from minikafka.client import Client, NewTopic, Record
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.files import (
    BytesLeft,
    NamesLeft,
    former_bytes,
    names_of_last_fsync,
    some_names,
)
from minikafka.simulation.loop import run_seeded

pytestmark = pytest.mark.usefixtures("each_mode")

KEYS = {"log_flush_interval_messages": 1, "default_replication_factor": 3}
PAID = TopicPartition("paid", 0)


def zeros(path: str, data: bytes, former: bytes) -> bytes:
    return bytes(len(data))


MODELS: dict[str, tuple[BytesLeft, NamesLeft]] = {
    "last-fsync": (former_bytes, names_of_last_fsync),
    "some-names": (zeros, some_names(2)),
}


def cut_power(cluster: MemoryCluster, remains: BytesLeft, names: NamesLeft) -> None:
    for number in list(cluster.brokers):
        cluster.lose_power(number, remains, names)
        cluster.end_session(number)


async def restart(cluster: MemoryCluster) -> None:
    for number in cluster.storages:
        await cluster.start(number)


async def values(user: Client, topic: str) -> list[bytes]:
    """Return the values of all records in partition 0."""
    found: list[bytes] = []
    end = (await user.list_offsets(topic, "latest"))[0]
    while len(found) < end:
        fetched = await user.fetch(topic, 0, len(found))
        found += [record.value or b"" for record in fetched.records]
    return found


async def produce(user: Client, topic: str, *values: bytes) -> None:
    for value in values:
        await user.produce(topic, [Record(value=value)], partition=0)


async def delete(cluster: MemoryCluster, user: Client) -> None:
    """Delete the topic, and wait until its name is free."""
    await user.delete_topics("t")
    while "t" in await user.list_topics():
        await cluster.clock.sleep(50)
    await cluster.clock.sleep(1_000)


@pytest.mark.parametrize("model", MODELS)
def test_power_loss_after_topics_were_created_loses_nothing_acknowledged(model: str) -> None:
    async def scene() -> None:
        async with MemoryCluster(3, **KEYS) as cluster, cluster.client() as user:
            for each in ("a", "b", PAID.topic):
                await user.create_topics(NewTopic(each, 1, 3))
            for number in (1, 2):
                await produce(user, "a", b"a")
                await produce(user, "b", b"b", b"b")
                group = GroupClient(cluster, f"g{number}")
                assert await group.commit({("a", 0): number}) == {0}
                payer = TransactionalProducer(cluster, f"p{number}")
                await payer.init()
                await payer.produce(PAID, b"paid %d" % number)
                await payer.end()
                fresh = f"new{number}"
                await user.create_topics(NewTopic(fresh, 1, 3))
                await produce(user, fresh, b"fresh")
                cut_power(cluster, *MODELS[model])
                await restart(cluster)
                assert await values(user, "a") == [b"a"] * number
                assert await values(user, "b") == [b"b"] * 2 * number
                assert await values(user, fresh) == [b"fresh"]
                assert await group.committed() == {("a", 0): number}
                group.close()
                payer.close()
            reader = CommittedReader(cluster, PAID)
            found = [value for _, value in await reader.poll()]
            assert found == [b"paid 1", b"paid 2"]
            reader.close()

    run_seeded(1, scene())


@pytest.mark.parametrize("model", MODELS)
def test_power_loss_after_a_topic_was_created_again_brings_no_old_record_back(model: str) -> None:
    async def scene() -> None:
        async with MemoryCluster(3, **KEYS) as cluster, cluster.client() as user:
            for number in (1, 2):
                await user.create_topics(NewTopic("t", 1, 3))
                await produce(user, "t", *[b"old"] * 5)
                await delete(cluster, user)
                await user.create_topics(NewTopic("t", 1, 3))
                await produce(user, "t", b"new", b"new")
                cut_power(cluster, *MODELS[model])
                await restart(cluster)
                assert await values(user, "t") == [b"new", b"new"], number
                await delete(cluster, user)

    run_seeded(1, scene())


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs the /proc of Linux")
def test_power_loss_that_leaves_only_fsynced_files_of_a_disk_loses_nothing_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    durable = FsyncedFiles(monkeypatch)

    async def scene() -> None:
        async with MemoryCluster(3, **KEYS) as cluster, cluster.client() as user:
            for number in list(cluster.brokers):
                cluster.kill_with_session(number)
                (tmp_path / f"{number}").mkdir()
                cluster.storages[number] = RootedStorage(tmp_path / f"{number}")  # type: ignore[assignment]
            await restart(cluster)
            for topic in ("a", "b", "c"):
                await user.create_topics(NewTopic(topic, 1, 3))
                await produce(user, topic, b"1", b"2")
            group = GroupClient(cluster, "g")
            assert await group.commit({("a", 0): 2}) == {0}
            for number in list(cluster.brokers):
                durable.restore(tmp_path / f"{number}", tmp_path / f"{number} after the loss")
                cluster.kill_with_session(number)
                left = RootedStorage(tmp_path / f"{number} after the loss")
                cluster.storages[number] = left  # type: ignore[assignment]
            await restart(cluster)
            for topic in ("a", "b", "c"):
                assert await values(user, topic) == [b"1", b"2"]
            assert await group.committed() == {("a", 0): 2}
            group.close()

    try:
        run_seeded(1, scene())
    finally:
        durable.close()
