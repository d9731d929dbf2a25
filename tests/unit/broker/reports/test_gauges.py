"""The metrics of whole brokers in memory, after records were produced, replicated and read."""

from __future__ import annotations

import asyncio
from typing import Literal, get_args

import pytest
from support.clients.session_consumer import SessionConsumer
from support.storage.replication import Replicas
from support.until import until

from minikafka.base.metrics import Number, prometheus_text
from minikafka.base.model import TopicPartition
from minikafka.broker.broker import BrokerServer
from minikafka.broker.modes.controller.terms.reader import Signal
from minikafka.broker.modes.controller.terms.view import summary_of
from minikafka.broker.reports.controller_gauges import CONTROLLER_STATES
from minikafka.broker.reports.gauges import MANAGER
from minikafka.client import NewTopic, NotProduced, Record
from minikafka.deciders.controller import events
from minikafka.deciders.decider import Outcome
from minikafka.simulation.cluster import MemoryCluster

TRAFFIC = "kafka_server_brokertopicmetrics_"
REQUESTS = "kafka_network_requestmetrics_"


def read(broker: BrokerServer) -> dict[str, float]:
    """Return the samples of a broker's Prometheus text, by name with labels."""
    lines = "".join(prometheus_text(broker.metrics)).splitlines()
    samples = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in samples}


def totals(broker: BrokerServer) -> dict[str, Number]:
    return broker.metrics.totals()


async def test_metrics_count_produced_and_replicated_and_consumed_records() -> None:
    async with MemoryCluster(2) as cluster, cluster.client() as user:
        await user.create_topics(NewTopic("t", assignment={0: (0, 1)}))
        for _ in range(3):
            await user.produce("t", [Record(value=b"v" * 100)] * 2, partition=0)
        fetched = [record async for record in user.consume("t", until_end=True)]
        assert len(fetched) == 6
        leader, follower = cluster.brokers[0], cluster.brokers[1]
        seen = read(leader)
        assert seen[TRAFFIC + "messagesin_total"] == 6
        assert seen[TRAFFIC + 'messagesin_total{topic="t"}'] == 6
        assert seen[TRAFFIC + "totalproducerequests_total"] == 3
        size = seen[TRAFFIC + "bytesin_total"]
        assert size > 600
        assert seen[TRAFFIC + "bytesout_total"] == size
        assert seen[TRAFFIC + "replicationbytesout_total"] == size
        assert read(follower)[TRAFFIC + "replicationbytesin_total"] == size
        assert read(follower)[TRAFFIC + "messagesin_total"] == 0
        assert seen[REQUESTS + 'requests_total{request="Produce"}'] == 3
        assert 1 <= seen[REQUESTS + 'totaltimems_count{request="Produce"}'] <= 3
        assert seen[REQUESTS + 'requests_total{request="FetchConsumer"}'] >= 1
        assert seen[REQUESTS + 'requests_total{request="FetchFollower"}'] >= 1
        assert seen[REQUESTS + 'requests_total{request="Metadata"}'] >= 1


async def test_metrics_count_fetch_sessions_and_their_partitions() -> None:
    bean = "kafka_server_fetchsessioncache_"
    config = {"max_incremental_fetch_session_cache_slots": 2}
    async with MemoryCluster(2, **config) as cluster, cluster.client() as user:
        await user.create_topics(NewTopic("t", assignment=dict.fromkeys(range(3), (0, 1))))
        leader = cluster.brokers[0]
        await until(lambda: read(leader)[bean + "numincrementalfetchpartitionscached"] == 3)
        assert read(leader)[bean + "numincrementalfetchsessions"] == 1
        consumers = [
            await SessionConsumer.connect(cluster.transport, cluster.clock, 9092) for _ in "ab"
        ]
        for consumer in consumers:
            consumer.assign({("t", number): 0 for number in range(3)})
            await consumer.poll()
        seen = read(leader)
        assert seen[bean + "numincrementalfetchsessions"] == 2
        assert seen[bean + "numincrementalfetchpartitionscached"] == 6
        assert seen[bean + "incrementalfetchsessionevictions_total"] == 0
        await consumers[0].close_session()
        assert read(leader)[bean + "numincrementalfetchsessions"] == 1


async def test_metrics_describe_each_partition_and_its_log() -> None:
    async with MemoryCluster(2) as cluster, cluster.client() as user:
        await user.create_topics(NewTopic("t", assignment={0: (0, 1)}))
        await user.produce("t", [Record(value=b"v")], partition=0)
        seen = read(cluster.brokers[0])
        where = '{topic="t",partition="0"}'
        assert seen["kafka_cluster_partition_insyncreplicascount" + where] == 2
        assert seen["kafka_cluster_partition_underreplicated" + where] == 0
        assert seen["kafka_log_log_logendoffset" + where] == 1
        assert seen["kafka_log_log_size" + where] > 0
        assert "kafka_cluster_partition_replicascount" + where not in read(cluster.brokers[1])
        assert "kafka_log_log_numlogsegments" + where in read(cluster.brokers[1])


@pytest.mark.key("replica.lag.time.max.ms")
async def test_metrics_count_isr_changes_and_under_replicated_partitions() -> None:
    async with MemoryCluster(2, replica_lag_time_max_ms=2_000) as cluster, cluster.client() as user:
        await user.create_topics(NewTopic("t", assignment={0: (0, 1)}))
        leader = cluster.brokers[0]
        await cluster.stop(1, controlled=False)
        await until(lambda: totals(leader)["UnderReplicatedPartitions"] == 1)
        await cluster.start(1)
        await until(lambda: totals(leader)["UnderReplicatedPartitions"] == 0)
        assert totals(leader)["IsrExpandsPerSec"] == 1


@pytest.mark.parametrize("acks", [1, -1])
async def test_refused_produce_requests_are_counted_as_failed(acks: Literal[1, -1]) -> None:
    async with MemoryCluster(1) as cluster, cluster.client() as user:
        await user.create_topics(NewTopic("t", configs={"max.message.bytes": "200"}))
        with pytest.raises(NotProduced):
            await user.produce("t", [Record(value=b"v" * 1000)], acks=acks)
        seen = read(cluster.brokers[0])
        assert seen[TRAFFIC + "failedproducerequests_total"] == 1
        assert seen[TRAFFIC + "bytesrejected_total"] > 1000
        assert seen[TRAFFIC + 'bytesrejected_total{topic="t"}'] > 1000
        assert seen[TRAFFIC + "totalproducerequests_total"] == 0
        assert seen[REQUESTS + 'requests_total{request="Produce"}'] == 1


async def test_produce_requests_without_acks_are_counted() -> None:
    async with MemoryCluster(1) as cluster, cluster.client() as user:
        await user.create_topics(NewTopic("t"))
        await user.produce("t", [Record(value=b"v")], acks=0)
        name = REQUESTS + 'requests_total{request="Produce"}'
        await until(lambda: read(cluster.brokers[0])[name] == 1)
        assert read(cluster.brokers[0])[TRAFFIC + "messagesin_total"] == 1


async def test_metrics_count_the_replicas_of_a_topic_whose_deletion_waits() -> None:
    def counts(broker: BrokerServer) -> tuple[Number, Number]:
        seen = totals(broker)
        return seen["ReplicasToDeleteCount"], seen["ReplicasIneligibleToDeleteCount"]

    async with MemoryCluster(3) as cluster, cluster.client() as user:
        await user.create_topics(NewTopic("t", assignment={0: (0, 1), 1: (0, 2)}))
        assert counts(cluster.brokers[0]) == (0, 0)
        await cluster.stop(1)
        await user.delete_topics("t")
        await until(lambda: counts(cluster.brokers[0]) == (1, 1))
        await cluster.start(1)
        await until(lambda: counts(cluster.brokers[0]) == (0, 0))


async def test_metrics_show_the_state_of_the_controller() -> None:
    name = "ControllerState"
    async with MemoryCluster(2) as cluster:
        active, other = sorted(
            cluster.brokers.values(),
            key=lambda broker: not broker.capabilities.diagnostics.is_active,
        )
        await until(lambda: totals(active)[name] == 0)
        id_ = other.config.broker_id
        stopping = asyncio.ensure_future(cluster.stop(id_, controlled=False))
        await until(lambda: totals(active)[name] == CONTROLLER_STATES["BrokerChange"])
        await stopping
        await until(lambda: totals(active)[name] == 0)


def test_each_controller_event_and_signal_is_mapped_to_a_controller_state() -> None:
    """An event that is caused by a `Signal` is handled in the controller state of that signal."""
    assert {signal.value for signal in Signal} < CONTROLLER_STATES.keys()
    caused_by_signals = {
        events.ControllerElected,
        events.BrokersChanged,
        events.TopicsChanged,
        events.AssignmentChanged,
        events.DeletionsChanged,
        events.IsrChanged,
        events.LogDirsFailed,
        events.ReassignmentsSubmitted,
        events.PreferredElectionSubmitted,
    }
    caused_by_commands = {Outcome}
    causes = caused_by_signals | caused_by_commands
    queued = {event.__name__ for event in set(get_args(events.Event)) - causes}
    assert queued < CONTROLLER_STATES.keys()


async def test_metrics_show_the_state_of_the_broker() -> None:
    async with MemoryCluster(2) as cluster:
        broker = cluster.brokers[1]
        assert totals(broker)["BrokerState"] == 3
        seen = [3]

        def note() -> bool:
            if (state := int(totals(broker)["BrokerState"])) != seen[-1]:
                seen.append(state)
            return state == 7

        stopping = asyncio.ensure_future(cluster.stop(1))
        await until(note)
        await stopping
        assert seen == [3, 6, 7]


async def test_only_the_active_controller_counts_brokers() -> None:
    async with MemoryCluster(2) as cluster:
        active, other = sorted(
            cluster.brokers.values(),
            key=lambda broker: not broker.capabilities.diagnostics.is_active,
        )
        await until(lambda: totals(active)["ActiveBrokerCount"] == 2)
        assert totals(active)["UncleanLeaderElectionsPerSec"] == 0
        assert (totals(other)["ActiveBrokerCount"], totals(other)["ActiveControllerCount"]) == (
            0,
            0,
        )


@pytest.mark.row("J7", "B3")
async def test_metrics_show_availability_and_waiting_produce_requests_of_each_partition() -> None:
    async with MemoryCluster(2, min_insync_replicas=2) as cluster, cluster.client() as user:
        await user.create_topics(NewTopic("t", assignment={0: (0, 1)}))
        await user.produce("t", [Record(value=b"v")], partition=0)
        available = 'kafka_cluster_partition_available{topic="t",partition="0"}'
        waiting = 'kafka_cluster_partition_waitingproduces{topic="t",partition="0"}'
        leader, follower = cluster.brokers[0], cluster.brokers[1]
        assert (read(leader)[available], read(follower)[available]) == (1, 0)
        assert read(leader)[waiting] == 0
        follower.replicas.fetchers.remove(TopicPartition("t", 0))
        produces = asyncio.ensure_future(user.produce("t", [Record(value=b"v")], partition=0))
        await until(lambda: read(leader)[waiting] == 1)
        follower.replicas.fetchers.add(follower.replicas.partitions[TopicPartition("t", 0)])
        await produces
        assert read(leader)[waiting] == 0
        leader.replicas.partitions[TopicPartition("t", 0)].stop()
        assert read(leader)[available] == read(follower)[available] == 0


@pytest.mark.row("H3", "C39")
async def test_metrics_count_unclean_elections_and_the_requests_queued_for_each_broker() -> None:
    async with MemoryCluster(3) as cluster, cluster.client() as user:
        active = next(b for b in cluster.brokers.values() if b.capabilities.diagnostics.is_active)
        first, second = (n for n, b in cluster.brokers.items() if b is not active)
        configs = {"unclean.leader.election.enable": "true"}
        topic = NewTopic("t", assignment={0: (first, second)}, configs=configs)
        await user.create_topics(topic)
        backlog = f'kafka_controller_controllerchannelmanager_queuesize{{broker_id="{first}"}}'
        await until(lambda: read(active)[backlog] == 0)
        await cluster.stop(second)
        await until(lambda: active.metadata.topics["t"][0].isr == (first,))
        await cluster.stop(first, controlled=False)
        await cluster.start(second)
        name = "kafka_controller_controllerstats_uncleanleaderelections_total"
        await until(lambda: read(active).get(name + '{topic="t",partition="0"}') == 1)
        assert read(active)[name] == totals(active)["UncleanLeaderElectionsPerSec"] == 1


async def test_metrics_count_suspicions_and_those_that_were_false() -> None:
    async with MemoryCluster(2) as cluster:
        active = next(b for b in cluster.brokers.values() if b.capabilities.diagnostics.is_active)
        other = next(b for b in cluster.brokers.values() if b is not active).info
        term = active.capabilities.diagnostics._term
        counts = ("SuspicionsPerSec", "FalseSuspicionsPerSec")
        term.put(events.BrokerSuspected(other.id, other.epoch, "refused"))
        await until(lambda: [totals(active)[name] for name in counts] == [1, 0])
        assert summary_of(term)["suspects"] == [other.id]
        term.put(events.SuspicionEnded(other.id, other.epoch))
        await until(lambda: [totals(active)[name] for name in counts] == [1, 1])
        assert summary_of(term)["suspects"] == []


@pytest.mark.row("R36")
@pytest.mark.parametrize(
    ("isr", "adding", "counted"),
    [
        ((0, 1, 2), (), []),
        ((0, 1), (), ["UnderReplicatedPartitions", "AtMinIsrPartitionCount"]),
        ((0, 1), (2,), ["ReassigningPartitions", "AtMinIsrPartitionCount"]),
        ((0,), (), ["UnderReplicatedPartitions", "UnderMinIsrPartitionCount"]),
    ],
)
def test_partition_counts_as_short_of_replicas_by_its_isr_without_added_replicas(
    isr: tuple[int, ...], adding: tuple[int, ...], counted: list[str]
) -> None:
    replicas = Replicas((0, 1, 2), isr=isr, min_insync_replicas="2")
    replicas.elect(0)
    partition = replicas[0].partition
    partition.adding = adding
    names = [name for name in MANAGER if "PartitionCount" in name or name.endswith("Partitions")]
    values = {
        name: MANAGER[name][1](None, [partition]) for name in names if name != "PartitionCount"
    }
    assert [name for name, value in values.items() if value] == counted
