"""Effects of the transaction coordinator's configuration keys, on whole brokers in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.clients.transactional_client import Fenced, MustAbort, TransactionalProducer

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.client import NewTopic
from minikafka.kafka.wire.versions import DESCRIBE_TRANSACTIONS
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded
from minikafka.storage.replication.reader import PartitionReader

pytestmark = pytest.mark.usefixtures("each_mode")
T = TopicPartition("t", 0)
ONE = {
    "transaction_state_log_replication_factor": 1,
    "transaction_state_log_num_partitions": 1,
    "transaction_state_log_min_isr": 1,
}
Scenario = Callable[[MemoryCluster, TransactionalProducer], Awaitable[None]]


def run(scenario: Scenario, **config: object) -> None:
    """Run a scenario with the topic t and a producer on a broker with this configuration."""

    async def scene() -> None:
        async with MemoryCluster(1, **{**ONE, **config}) as cluster, cluster.client() as user:
            await user.admin.create_topics([NewTopic("t", 1, 1)])
            producer = TransactionalProducer(cluster, "tx")
            await scenario(cluster, producer)
            producer.close()

    run_seeded(1, scene())


async def state_of(producer: TransactionalProducer) -> str:
    """Return the state of the producer's transactional id, "" if the coordinator does not know the id."""
    answer = await producer.ask(DESCRIBE_TRANSACTIONS, transactional_ids=[producer.group])
    (row,) = answer.transaction_states
    assert row.error_code in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return str(row.transaction_state)


@pytest.mark.key("transaction.max.timeout.ms")
def test_producer_with_a_timeout_above_the_maximum_is_refused() -> None:
    async def scenario(cluster: MemoryCluster, producer: TransactionalProducer) -> None:
        await producer.init(timeout_ms=5_000)
        for timeout_ms in (5_001, 2**31 - 1, 0, -1):
            with pytest.raises(MustAbort) as refused:
                await producer.init(timeout_ms=timeout_ms)
            assert refused.value.args == (ErrorCode.INVALID_TRANSACTION_TIMEOUT,)

    run(scenario, transaction_max_timeout_ms=5_000)


@pytest.mark.key("transaction.abort.timed.out.transaction.cleanup.interval.ms")
def test_transaction_that_has_timed_out_is_aborted_within_the_interval() -> None:
    async def scenario(cluster: MemoryCluster, producer: TransactionalProducer) -> None:
        await producer.init(timeout_ms=60_000)
        await producer.add(T)
        await cluster.clock.sleep(59_000)
        assert await state_of(producer) == "Ongoing"
        await cluster.clock.sleep(3_500)
        assert await state_of(producer) == "CompleteAbort"
        with pytest.raises(Fenced):
            await producer.end()

    run(scenario, transaction_abort_timed_out_transaction_cleanup_interval_ms=2_000)


@pytest.mark.key(
    "transactional.id.expiration.ms", "transaction.remove.expired.transaction.cleanup.interval.ms"
)
def test_unused_transactional_id_expires() -> None:
    async def scenario(cluster: MemoryCluster, producer: TransactionalProducer) -> None:
        await producer.init()
        await producer.add(T)
        await producer.end()
        await cluster.clock.sleep(95_000)
        assert await state_of(producer) == "CompleteCommit"
        await cluster.clock.sleep(20_000)
        assert await state_of(producer) == ""
        await cluster.stop(0)
        await cluster.start(0)
        assert await state_of(producer) == ""

    run(
        scenario,
        transactional_id_expiration_ms=100_000,
        transaction_remove_expired_transaction_cleanup_interval_ms=5_000,
    )


@pytest.mark.key("transaction.state.log.load.buffer.size")
def test_coordinator_loads_transactions_in_reads_of_the_configured_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []
    read = PartitionReader.read

    def watched(reader: Any, max_bytes: int) -> bytes:
        sizes.append(max_bytes)
        return read(reader, max_bytes)

    monkeypatch.setattr(PartitionReader, "read", watched)

    async def scenario(cluster: MemoryCluster, producer: TransactionalProducer) -> None:
        await producer.init()
        for _ in range(5):
            await producer.add(T)
            await producer.end()
        await cluster.stop(0)
        await cluster.start(0)
        await producer.add(T)
        assert await state_of(producer) == "Ongoing"

    run(scenario, transaction_state_log_load_buffer_size=300)
    assert 300 in sizes
    assert sizes.count(300) > 5
