"""One controller term: its reads from ZooKeeper and its requests to brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, get_args

import pytest
from support.brokers.controller_bench import T0, ControllerBench, create_topic, until

from minikafka.base.errors import ErrorCode, KafkaError, StaleSession
from minikafka.base.model import (
    ControllerResponse,
    LeaderAndIsr,
    LeaderAndIsrRequest,
    ReplicaAssignment,
    StopReplicaRequest,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.base.protocol_versions import UNVERSIONED, VERSIONS, Versions
from minikafka.broker.controlled_shutdown import HANDOVER_MS
from minikafka.broker.modes.controller.terms.controller import ANSWERS_MS
from minikafka.deciders.controller.commands import Command, WatchStates
from minikafka.deciders.controller.events import RebalanceDue
from minikafka.simulation import run_seeded
from minikafka.simulation.clocks import LoopClock
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.zookeeper.nodes import layout

T1 = TopicPartition("t", 1)


@pytest.fixture
async def bench() -> AsyncIterator[ControllerBench]:
    bench = await ControllerBench().elected()
    yield bench
    await bench.close()


async def test_term_carries_out_every_type_of_command(bench: ControllerBench) -> None:
    term = bench.service._term
    assert term is not None
    assert term._commands().keys() == set(get_args(Command))


@pytest.mark.row("E2", "R5")
async def test_created_topic_gets_leaders_and_its_replicas_receive_leaderandisr(
    bench: ControllerBench,
) -> None:
    create_topic(bench.ensemble, "t", [2, 3], [3, 1])
    await bench.led(2)
    await bench.led(3, T1)
    (request,) = bench.channels.to(3, LeaderAndIsrRequest)
    assert {p.tp for p in request.partitions} == {T0, T1}
    assert request.broker_epoch == bench.epoch_of(3)
    assert request.topic_ids == (("t", b"0123456789abcdef"),)


@pytest.mark.row("E1")
async def test_dead_broker_is_replaced_as_leader_and_its_channel_closed(
    bench: ControllerBench,
) -> None:
    create_topic(bench.ensemble, "t", [2, 3])
    await bench.led(2)
    bench.ensemble.delete(layout.broker_path(2))
    state = await bench.led(3)
    assert state.isr == (3,)
    assert 2 not in bench.channels.open


@pytest.mark.row("E1", "R19", "T20")
async def test_broker_restart_with_unchanged_broker_ids_is_recognized_by_the_czxid(
    bench: ControllerBench,
) -> None:
    """Both reads return the same broker ids, but the registration is new (S20)."""
    create_topic(bench.ensemble, "t", [2, 3])
    await bench.led(2)
    bench.ensemble.delete(layout.broker_path(2))
    bench.register_broker(2)
    await bench.led(3)
    assert bench.channels.open[2].epoch == bench.epoch_of(2)
    assert bench.channels.to(2, LeaderAndIsrRequest)[-1].broker_epoch == bench.epoch_of(2)


@pytest.mark.row("E3", "I9")
async def test_added_partitions_get_leaders(bench: ControllerBench) -> None:
    create_topic(bench.ensemble, "t", [2, 3])
    await bench.led(2)
    create_topic(bench.ensemble, "t", [2, 3], [1, 2])
    await bench.led(1, T1)
    state = bench.state()
    assert state is not None
    assert state.leader_epoch == 0


@pytest.mark.row("R69")
async def test_topic_recreated_after_its_deletion_was_seen_is_a_new_topic(
    bench: ControllerBench,
) -> None:
    """The topic node is absent when its data is read and exists again when the topic names are read."""
    create_topic(bench.ensemble, "t", [2, 3])
    await bench.led(2)
    zookeeper = bench.zookeeper
    children = zookeeper.children

    async def after_it_was_made_again(path: str, *, watch: bool = False) -> Any:
        if path == layout.TOPICS and layout.topic_path("t") not in bench.ensemble.nodes:
            create_topic(bench.ensemble, "t", [3, 1])
        return await children(path, watch=watch)

    zookeeper.children = after_it_was_made_again
    for path in (layout.state_path(T0), layout.partition_path(T0), layout.partitions_path("t")):
        bench.ensemble.delete(path)
    bench.ensemble.delete(layout.topic_path("t"))
    await bench.led(3)
    create_topic(bench.ensemble, "t", [3, 1], [1, 2])
    await bench.led(1, T1)


@pytest.mark.row("R69")
async def test_topic_recreated_before_the_controller_saw_its_deletion_is_a_new_topic(
    bench: ControllerBench,
) -> None:
    create_topic(bench.ensemble, "t", [2, 3])
    await bench.led(2)
    for path in (layout.state_path(T0), layout.partition_path(T0), layout.partitions_path("t")):
        bench.ensemble.delete(path)
    bench.ensemble.delete(layout.topic_path("t"))
    create_topic(bench.ensemble, "t", [3, 1])
    state = await bench.led(3)
    assert state.isr == (3, 1)


@pytest.mark.row("E6", "A14", "R26")
async def test_isr_change_is_sent_to_every_broker_and_its_notification_deleted(
    bench: ControllerBench,
) -> None:
    create_topic(bench.ensemble, "t", [2, 3])
    state = await bench.led(2)
    shrunk = LeaderAndIsr(2, state.leader_epoch, (2,), state.controller_epoch, 0)
    bench.ensemble.put(layout.state_path(T0), layout.encode_state(shrunk))
    bench.ensemble.put(layout.ISR_CHANGE_PREFIX + "0000000007", layout.encode_isr_change([T0]))
    bench.ensemble.put(layout.ISR_CHANGE_PREFIX + "0000000008", b"garbage")
    await until(lambda: bench.ensemble.children(layout.ISR_CHANGES) == [])
    await bench.idle()
    for broker_id in (1, 2, 3):
        assert bench.channels.to(broker_id, UpdateMetadataRequest)[-1].partitions[0].isr == (2,)


@pytest.mark.row("T9")
async def test_failover_deletes_old_isr_change_and_log_dir_event_notifications() -> None:
    bench = ControllerBench()
    bench.ensemble.put(layout.ISR_CHANGE_PREFIX + "0000000001", layout.encode_isr_change([T0]))
    bench.ensemble.put(layout.LOG_DIR_EVENT_PREFIX + "0000000001", layout.encode_log_dir_event(1))
    await bench.elected()
    assert bench.ensemble.children(layout.ISR_CHANGES) == []
    assert bench.ensemble.children(layout.LOG_DIR_EVENTS) == []
    await bench.close()


@pytest.mark.row("R67", "R16", "X10")
async def test_leaderships_move_away_from_a_failed_log_directory(
    bench: ControllerBench,
) -> None:
    create_topic(bench.ensemble, "t", [2, 3], [2, 3])
    await bench.led(2)

    def lost_first(broker_id: int, request: Any) -> ControllerResponse | None:
        if broker_id != 2 or not isinstance(request, LeaderAndIsrRequest):
            return None
        codes = {T0: int(ErrorCode.KAFKA_STORAGE_ERROR)}
        return ControllerResponse(0, tuple((p.tp, codes.get(p.tp, 0)) for p in request.partitions))

    bench.channels.answer = lost_first
    bench.ensemble.put(layout.LOG_DIR_EVENT_PREFIX + "0000000001", layout.encode_log_dir_event(2))
    state = await bench.led(3)
    assert state.isr == (3,)
    assert bench.ensemble.children(layout.LOG_DIR_EVENTS) == []
    await bench.led(2, T1)


@pytest.mark.row("R23")
async def test_controlled_shutdown_returns_the_partitions_that_could_not_be_moved(
    bench: ControllerBench,
) -> None:
    create_topic(bench.ensemble, "t", [2, 3], [3, 2])
    await bench.led(2)
    service = bench.service
    assert await service.controlled_shutdown(2, bench.epoch_of(2)) == []
    assert (await bench.led(3)).isr == (3,)
    assert [p.tp for p in bench.channels.to(2, StopReplicaRequest)[0].partitions] == [T1]
    assert await service.controlled_shutdown(3, bench.epoch_of(3)) == [T0, T1]


@pytest.mark.row("R23")
async def test_controlled_shutdown_request_with_an_earlier_broker_epoch_is_refused(
    bench: ControllerBench,
) -> None:
    with pytest.raises(KafkaError) as error:
        await bench.service.controlled_shutdown(2, bench.epoch_of(2) - 1)
    assert error.value.code is ErrorCode.STALE_BROKER_EPOCH


def milliseconds_of_a_shutdown(versions: Versions, answers_after: int) -> int:
    """Return the time until the controller answers broker 4, while broker 3 answers requests after this time."""

    async def scenario() -> int:
        clock = LoopClock()
        bench = ControllerBench(clock)
        bench.register_broker(4, versions)
        await bench.elected()
        create_topic(bench.ensemble, "t", [4, 3])
        await bench.led(4)
        begin = clock.now()
        bench.channels.unanswered = {3: 2}
        clock.call_later(answers_after, bench.channels.unanswered.clear)
        assert await bench.service.controlled_shutdown(4, bench.epoch_of(4)) == []
        end = clock.now()
        await bench.close()
        return end - begin

    return run_seeded(1, scenario())


@pytest.mark.row("R23")
def test_controlled_shutdown_is_answered_when_the_other_brokers_know_the_new_leaders() -> None:
    assert 300 <= milliseconds_of_a_shutdown(VERSIONS, answers_after=300) <= 310


@pytest.mark.row("R23")
def test_controlled_shutdown_waits_one_second_at_most_for_a_broker_that_hangs() -> None:
    assert ANSWERS_MS <= milliseconds_of_a_shutdown(VERSIONS, answers_after=60_000) <= 1_010


@pytest.mark.row("R23")
def test_broker_of_release_0_1_0_may_answer_its_clients_before_its_shutdown_is_answered() -> None:
    found = milliseconds_of_a_shutdown((UNVERSIONED,), answers_after=300)
    assert 300 + HANDOVER_MS <= found <= 310 + HANDOVER_MS


@pytest.mark.row("R23")
async def test_controlled_shutdown_is_answered_when_the_term_ends_after_the_leaders_moved(
    bench: ControllerBench,
) -> None:
    create_topic(bench.ensemble, "t", [2, 3])
    await bench.led(2)
    bench.channels.unanswered = {3: 1}
    waiting = asyncio.create_task(bench.service.controlled_shutdown(2, bench.epoch_of(2)))
    await bench.led(3)
    await bench.zookeeper.expire()
    assert await waiting == []


@pytest.mark.row("R13")
async def test_controlled_shutdown_is_refused_when_the_controller_resigns_meanwhile(
    bench: ControllerBench,
) -> None:
    gate = asyncio.Event()
    multi = bench.zookeeper.multi

    async def held(*args: Any, **kwargs: Any) -> Any:
        await gate.wait()
        return await multi(*args, **kwargs)

    create_topic(bench.ensemble, "t", [2, 3])
    await bench.led(2)
    bench.zookeeper.multi = held  # type: ignore[method-assign]
    waiting = asyncio.gather(
        bench.service.controlled_shutdown(2, bench.epoch_of(2)), return_exceptions=True
    )
    await until(lambda: bench.shown()["state"] == "ControlledShutdownRequested")
    await bench.zookeeper.expire()
    (error,) = await waiting
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.NOT_CONTROLLER
    gate.set()
    await until(lambda: bench.channels.open == {})


def end_lease(zookeeper: InMemoryClient, *, renew_if: Callable[[], bool]) -> None:
    """Let the lease end. Answers renew it only if `renew_if`; other answers take as long as the session timeout."""
    renew = zookeeper._session.on_answer

    def on_answer(sent: int) -> None:
        renew(sent if renew_if() else sent - zookeeper.session_timeout_ms)

    zookeeper._session.on_answer = on_answer  # type: ignore[method-assign]
    zookeeper.end_lease()


async def test_controller_sends_nothing_while_its_lease_may_have_expired(
    bench: ControllerBench,
) -> None:
    """The session may expire unnoticed while the event loop is blocked, so the lease is checked before sending."""
    zookeeper, sent = bench.zookeeper, bench.channels.sent
    create_topic(bench.ensemble, "t", [2, 3])
    await bench.led(2)
    exists, gate, asked = zookeeper.exists, asyncio.Event(), asyncio.Event()

    async def held(path: str, *, watch: bool = False) -> Any:
        asked.set()
        await gate.wait()
        return await exists(path, watch=watch)

    zookeeper.exists = held  # type: ignore[method-assign]
    end_lease(zookeeper, renew_if=gate.is_set)
    sent.clear()
    bench.ensemble.delete(layout.broker_path(2))
    await asked.wait()
    assert sent == []
    gate.set()
    await bench.led(3)
    assert sent


async def test_controller_reads_again_until_an_answer_has_renewed_its_lease(
    bench: ControllerBench,
) -> None:
    """An answer that takes longer than the session timeout does not make the lease valid."""
    zookeeper, sent = bench.zookeeper, bench.channels.sent
    create_topic(bench.ensemble, "t", [2, 3])
    await bench.led(2)
    exists = zookeeper.exists
    renewed_by = 3
    reads: list[int] = []

    async def counted(path: str, *, watch: bool = False) -> Any:
        assert sent == []
        reads.append(len(reads))
        return await exists(path, watch=watch)

    zookeeper.exists = counted  # type: ignore[method-assign]
    end_lease(zookeeper, renew_if=lambda: len(reads) >= renewed_by)
    sent.clear()
    bench.ensemble.delete(layout.broker_path(2))
    await bench.led(3)
    assert len(reads) == renewed_by
    assert sent


async def test_topic_marked_for_deletion_is_hidden_and_elects_no_new_leader(
    bench: ControllerBench,
) -> None:
    bench.refuse = {2, 3}
    create_topic(bench.ensemble, "t", [2, 3])
    await bench.led(2)
    bench.ensemble.put(layout.delete_topic_path("t"))
    await until(lambda: bench.shown()["topics_marked_for_deletion"] == ["t"])
    await bench.idle()
    assert bench.channels.to(3, UpdateMetadataRequest)[-1].partitions[0].leader == -2
    bench.ensemble.delete(layout.broker_path(2))
    await until(lambda: "2" not in bench.shown()["brokers"])
    await bench.idle()
    state = bench.state()
    assert state is not None
    assert state.leader == -1


@pytest.mark.row("E7")
async def test_topic_is_deleted_when_its_deletion_mark_is_read_before_the_topic(
    bench: ControllerBench,
) -> None:
    """Another topic's deletion mark makes the controller read all deletion marks before it reads the new topic."""
    gate = bench.gate
    create_topic(bench.ensemble, "u", [2, 3])
    await bench.led(2, TopicPartition("u", 0))
    gate.hold("creation.partitions-new")
    create_topic(bench.ensemble, "busy", [2])
    await until(lambda: gate.waiting)
    bench.ensemble.put(layout.delete_topic_path("u"))
    create_topic(bench.ensemble, "t", [2, 3])
    bench.ensemble.put(layout.delete_topic_path("t"))
    gate.open()
    await until(lambda: not bench.ensemble.children(layout.DELETE_TOPICS))
    await bench.idle()
    assert bench.ensemble.children(layout.TOPICS) == ["busy"]


@pytest.mark.row("L6")
async def test_topic_created_and_marked_for_deletion_during_loading_is_deleted() -> None:
    bench = ControllerBench()
    children = bench.zookeeper.children

    async def right_after(path: str, *, watch: bool = False) -> Any:
        names = await children(path, watch=watch)
        if path in (layout.TOPICS, layout.DELETE_TOPICS):
            bench.zookeeper.children = children  # type: ignore[method-assign]
            create_topic(bench.ensemble, "t", [2, 3])
            bench.ensemble.put(layout.delete_topic_path("t"))
        return names

    bench.zookeeper.children = right_after  # type: ignore[method-assign]
    await bench.elected()
    await until(lambda: not bench.ensemble.children(layout.DELETE_TOPICS))
    await bench.idle()
    assert bench.ensemble.children(layout.TOPICS) == []
    await bench.close()


async def test_unreadable_zookeeper_nodes_are_skipped_until_they_are_repaired(
    bench: ControllerBench,
) -> None:
    bench.ensemble.put(layout.topic_path("t"), b"garbage")
    bench.ensemble.put(layout.broker_path(9), b"garbage")
    create_topic(bench.ensemble, "u", [3])
    await bench.led(3, TopicPartition("u", 0))
    assert "9" not in bench.shown()["brokers"]
    create_topic(bench.ensemble, "t", [2])
    await bench.led(2)


@pytest.mark.row("A12", "D18")
@pytest.mark.parametrize("data", [b"", b"garbage", b'{"version":1,"partitions":[]}'])
@pytest.mark.parametrize("path", [layout.PREFERRED_ELECTION, layout.REASSIGN_PARTITIONS])
async def test_admin_nodes_without_a_valid_request_are_deleted_by_the_next_controller(
    path: str, data: bytes
) -> None:
    """The admin node was written while there was no controller. It blocks further requests until it is deleted."""
    bench = ControllerBench()
    bench.ensemble.put(path, data)
    await bench.start()
    await until(lambda: path not in bench.ensemble.nodes)
    await bench.close()


@pytest.mark.row("E2")
@pytest.mark.parametrize("name", ["two words", "ä", "x" * 250])
async def test_topic_with_an_invalid_name_is_ignored(
    bench: ControllerBench, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Brokers would refuse every request that contains a topic with an invalid name."""
    create_topic(bench.ensemble, name, [2, 3])
    create_topic(bench.ensemble, "t", [2, -3])
    for topic in ("u", "v"):
        create_topic(bench.ensemble, topic, [3, 2])
        await bench.led(3, TopicPartition(topic, 0))
    told = {
        p.tp.topic
        for request in bench.channels.to(3, LeaderAndIsrRequest)
        for p in request.partitions
    }
    assert told == {"u", "v"}
    assert caplog.text.count(f"{name!a} is not a topic name"[:40]) == 1


async def test_controller_finds_missed_changes_by_reading_all_nodes_after_a_reconnect(
    bench: ControllerBench,
) -> None:
    """Watch events contain no data, so the controller reads the nodes again (S31)."""
    create_topic(bench.ensemble, "t", [2, 3])
    await bench.led(2)
    bench.zookeeper.suspend()
    bench.ensemble.delete(layout.broker_path(2))
    await bench.zookeeper.attach()
    await bench.led(3)


@pytest.mark.row("A15", "H4", "M1")
@pytest.mark.key("unclean.leader.election.enable")
async def test_dead_leader_is_replaced_uncleanly_when_the_topic_setting_allows_it(
    bench: ControllerBench,
) -> None:
    bench.ensemble.put(
        layout.topic_config_path("t"),
        layout.encode_config({"unclean.leader.election.enable": "true", "of.a.later.kafka": "1"}),
    )
    create_topic(bench.ensemble, "t", [2, 3])
    state = await bench.led(2)
    alone = LeaderAndIsr(2, state.leader_epoch, (2,), state.controller_epoch, 0)
    bench.ensemble.put(layout.state_path(T0), layout.encode_state(alone))
    bench.ensemble.delete(layout.broker_path(2))
    assert (await bench.led(3)).isr == (3,)
    assert bench.shown()["unclean_elections"] == 1


@pytest.mark.row("R69")
async def test_topic_created_without_an_id_gets_a_permanent_id(bench: ControllerBench) -> None:
    text = layout.encode_topic(bytes(16), {0: ReplicaAssignment((2,))}).decode()
    bench.ensemble.put(layout.topic_path("t"), text.replace('"topic_id"', '"other"').encode())
    await bench.led(2)
    ((_, topic_id),) = bench.channels.to(2, LeaderAndIsrRequest)[-1].topic_ids

    def id_in_zookeeper() -> bytes | None:
        return layout.decode_topic(bench.ensemble.nodes[layout.topic_path("t")].data)[0]

    assert id_in_zookeeper() == topic_id
    bench.ensemble.put(layout.topic_path("t"), b'{"version":1,"partitions":{"0":[2],"1":[3]}}')
    await bench.led(3, T1)
    await bench.idle()
    assert id_in_zookeeper() == topic_id


@pytest.mark.row("R9")
async def test_controller_refuses_events_after_its_zookeeper_session_was_replaced(
    bench: ControllerBench,
) -> None:
    term = bench.service._term
    assert term is not None
    zookeeper = bench.zookeeper
    zookeeper._session.generation += 1
    with pytest.raises(StaleSession):
        await term.handle(RebalanceDue())
    zookeeper._session.generation -= 1
    await term.handle(RebalanceDue())


@pytest.mark.row("R9")
async def test_controller_carries_out_no_command_after_the_end_of_its_term(
    bench: ControllerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    term = bench.service._term
    assert term is not None
    commands = [WatchStates((T0,)), WatchStates((T1,))]
    carried_out: list[TopicPartition] = []

    async def end_term(partitions: tuple[TopicPartition, ...]) -> None:
        carried_out.extend(partitions)
        term.end()

    monkeypatch.setattr(term.machine, "handle", lambda *_: commands)
    monkeypatch.setattr(term.reader, "watch_states", end_term)
    with pytest.raises(StaleSession):
        await term.handle(RebalanceDue())
    assert carried_out == [T0]
