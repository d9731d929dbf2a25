"""One term in office: what it reads, what it tells the brokers, and what it does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.controller_bench import create_topic, until
from support.controller_office import T0, Office

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
from minikafka.controller.events import RebalanceDue
from minikafka.zk import layout

T1 = TopicPartition("t", 1)


@pytest.fixture
async def office() -> AsyncIterator[Office]:
    office = await Office().start()
    yield office
    await office.candidate.close()


@pytest.mark.row("E2", "R5")
async def test_a_created_topic_is_led_and_its_replicas_told(office: Office) -> None:
    create_topic(office.ensemble, "t", [2, 3], [3, 1])
    await office.led(2)
    await office.led(3, T1)
    (request,) = office.candidate.channels.to(3, LeaderAndIsrRequest)
    assert {p.tp for p in request.partitions} == {T0, T1}
    assert request.broker_epoch == office.epoch_of(3)
    assert request.topic_ids == (("t", b"0123456789abcdef"),)


@pytest.mark.row("E1")
async def test_a_broker_that_goes_is_replaced_and_its_channel_closed(office: Office) -> None:
    create_topic(office.ensemble, "t", [2, 3])
    await office.led(2)
    office.ensemble.delete(layout.broker_path(2))
    state = await office.led(3)
    assert state.isr == (3,)
    assert 2 not in office.candidate.channels.open


@pytest.mark.row("E1", "R19", "T20")
async def test_a_bounce_that_no_read_saw_is_known_by_its_czxid(office: Office) -> None:
    """S20: the children are the same two times, the registration is another."""
    create_topic(office.ensemble, "t", [2, 3])
    await office.led(2)
    office.ensemble.delete(layout.broker_path(2))
    office.register(2)
    await office.led(3)
    assert office.candidate.channels.open[2].epoch == office.epoch_of(2)
    assert office.candidate.channels.to(2, LeaderAndIsrRequest)[-1].broker_epoch == office.epoch_of(
        2
    )


@pytest.mark.row("E3", "I9")
async def test_added_partitions_come_to_life(office: Office) -> None:
    create_topic(office.ensemble, "t", [2, 3])
    await office.led(2)
    create_topic(office.ensemble, "t", [2, 3], [1, 2])
    await office.led(1, T1)
    state = office.state()
    assert state is not None
    assert state.leader_epoch == 0


@pytest.mark.row("R69")
async def test_a_topic_made_again_after_its_end_was_seen_starts_anew(office: Office) -> None:
    """Its node was missing when its data was read, and is there again when the names of all are."""
    create_topic(office.ensemble, "t", [2, 3])
    await office.led(2)
    coordination = office.candidate.coordination
    children = coordination.children

    async def after_it_was_made_again(path: str, *, watch: bool = False) -> Any:
        if path == layout.TOPICS and layout.topic_path("t") not in office.ensemble.nodes:
            create_topic(office.ensemble, "t", [3, 1])
        return await children(path, watch=watch)

    coordination.children = after_it_was_made_again
    for path in (layout.state_path(T0), layout.partition_path(T0), layout.partitions_path("t")):
        office.ensemble.delete(path)
    office.ensemble.delete(layout.topic_path("t"))
    await office.led(3)


@pytest.mark.row("R69")
async def test_a_topic_deleted_and_made_again_between_two_reads_starts_anew(office: Office) -> None:
    create_topic(office.ensemble, "t", [2, 3])
    await office.led(2)
    for path in (layout.state_path(T0), layout.partition_path(T0), layout.partitions_path("t")):
        office.ensemble.delete(path)
    office.ensemble.delete(layout.topic_path("t"))
    create_topic(office.ensemble, "t", [3, 1])
    state = await office.led(3)
    assert state.isr == (3, 1)


@pytest.mark.row("E6", "A14")
async def test_an_isr_change_reaches_every_broker_and_its_notification_goes(office: Office) -> None:
    create_topic(office.ensemble, "t", [2, 3])
    state = await office.led(2)
    shrunk = LeaderAndIsr(2, state.leader_epoch, (2,), state.controller_epoch, 0)
    office.ensemble.put(layout.state_path(T0), layout.encode_state(shrunk))
    office.ensemble.put(layout.ISR_CHANGE_PREFIX + "0000000007", layout.encode_isr_change([T0]))
    office.ensemble.put(layout.ISR_CHANGE_PREFIX + "0000000008", b"garbage")
    await until(lambda: office.ensemble.children(layout.ISR_CHANGES) == [])
    await office.idle()
    for broker_id in (1, 2, 3):
        assert office.candidate.channels.to(broker_id, UpdateMetadataRequest)[-1].partitions[
            0
        ].isr == (2,)


@pytest.mark.row("T9")
async def test_stale_notifications_are_removed_at_failover() -> None:
    office = Office()
    office.ensemble.put(layout.ISR_CHANGE_PREFIX + "0000000001", layout.encode_isr_change([T0]))
    office.ensemble.put(layout.LOG_DIR_EVENT_PREFIX + "0000000001", layout.encode_log_dir_event(1))
    await office.start()
    assert office.ensemble.children(layout.ISR_CHANGES) == []
    assert office.ensemble.children(layout.LOG_DIR_EVENTS) == []
    await office.candidate.close()


@pytest.mark.row("R67", "R16", "X10")
async def test_a_failed_log_directory_moves_the_leaders_that_lay_on_it(office: Office) -> None:
    create_topic(office.ensemble, "t", [2, 3], [2, 3])
    await office.led(2)

    def lost_first(broker_id: int, request: Any) -> ControllerResponse | None:
        if broker_id != 2 or not isinstance(request, LeaderAndIsrRequest):
            return None
        codes = {T0: int(ErrorCode.KAFKA_STORAGE_ERROR)}
        return ControllerResponse(0, tuple((p.tp, codes.get(p.tp, 0)) for p in request.partitions))

    office.candidate.channels.answer = lost_first
    office.ensemble.put(layout.LOG_DIR_EVENT_PREFIX + "0000000001", layout.encode_log_dir_event(2))
    state = await office.led(3)
    assert state.isr == (3,)
    assert office.ensemble.children(layout.LOG_DIR_EVENTS) == []
    await office.led(2, T1)


@pytest.mark.row("R23")
async def test_controlled_shutdown_answers_what_could_not_be_moved(office: Office) -> None:
    create_topic(office.ensemble, "t", [2, 3], [3, 2])
    await office.led(2)
    service = office.candidate.service
    assert await service.controlled_shutdown(2, office.epoch_of(2)) == []
    assert (await office.led(3)).isr == (3,)
    assert [p.tp for p in office.candidate.channels.to(2, StopReplicaRequest)[0].partitions] == [T1]
    assert await service.controlled_shutdown(3, office.epoch_of(3)) == [T0, T1]


@pytest.mark.row("R23")
async def test_controlled_shutdown_of_an_earlier_incarnation_is_refused(office: Office) -> None:
    with pytest.raises(KafkaError) as error:
        await office.candidate.service.controlled_shutdown(2, office.epoch_of(2) - 1)
    assert error.value.code is ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.row("R13")
async def test_who_waits_for_a_controlled_shutdown_hears_when_the_controller_resigns(
    office: Office,
) -> None:
    gate = asyncio.Event()
    multi = office.candidate.coordination.multi

    async def held(*args: Any, **kwargs: Any) -> Any:
        await gate.wait()
        return await multi(*args, **kwargs)

    create_topic(office.ensemble, "t", [2, 3])
    await office.led(2)
    office.candidate.coordination.multi = held  # type: ignore[method-assign]
    waiting = asyncio.gather(
        office.candidate.service.controlled_shutdown(2, office.epoch_of(2)), return_exceptions=True
    )
    await until(lambda: office.shown()["state"] == "ControlledShutdownRequested")
    office.candidate.coordination.expire()
    (error,) = await waiting
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.NOT_CONTROLLER
    gate.set()
    await until(lambda: office.candidate.channels.open == {})


async def test_nothing_is_sent_while_the_lease_is_in_doubt(office: Office) -> None:
    """A loop that was blocked has not heard yet that its session may be gone: it asks before it acts."""
    coordination, sent = office.candidate.coordination, office.candidate.channels.sent
    create_topic(office.ensemble, "t", [2, 3])
    await office.led(2)
    exists, gate, asked = coordination.exists, asyncio.Event(), asyncio.Event()

    async def held(path: str, *, watch: bool = False) -> Any:
        asked.set()
        await gate.wait()
        return await exists(path, watch=watch)

    coordination.exists = held  # type: ignore[method-assign]
    turn = coordination._turn

    async def unrenewed(generation: int | None = None) -> None:
        lease = coordination.lease
        await turn(generation)
        coordination.lease = lease or gate.is_set()

    coordination._turn = unrenewed  # type: ignore[method-assign]
    coordination.lease = False
    sent.clear()
    office.ensemble.delete(layout.broker_path(2))
    await asked.wait()
    assert sent == []
    gate.set()
    await office.led(3)
    assert sent


async def test_a_mark_for_deletion_hides_the_topic_and_keeps_elections_away(office: Office) -> None:
    office.refuse = {2, 3}
    create_topic(office.ensemble, "t", [2, 3])
    await office.led(2)
    office.ensemble.put(layout.delete_topic_path("t"))
    await until(lambda: office.shown()["topics_marked_for_deletion"] == ["t"])
    await office.idle()
    assert office.candidate.channels.to(3, UpdateMetadataRequest)[-1].partitions[0].leader == -2
    office.ensemble.delete(layout.broker_path(2))
    await until(lambda: "2" not in office.shown()["brokers"])
    await office.idle()
    state = office.state()
    assert state is not None
    assert state.leader == -1


@pytest.mark.row("E7")
async def test_a_mark_that_is_read_before_its_topic_was_heard_of_deletes_the_topic(
    office: Office,
) -> None:
    """The signal of another topic's mark waits ahead of the one that tells of the new topic."""
    gate = office.candidate.gate
    create_topic(office.ensemble, "u", [2, 3])
    await office.led(2, TopicPartition("u", 0))
    gate.hold("creation.partitions-new")
    create_topic(office.ensemble, "busy", [2])
    await until(lambda: gate.waiting)
    office.ensemble.put(layout.delete_topic_path("u"))
    create_topic(office.ensemble, "t", [2, 3])
    office.ensemble.put(layout.delete_topic_path("t"))
    gate.open()
    await until(lambda: not office.ensemble.children(layout.DELETE_TOPICS))
    await office.idle()
    assert office.ensemble.children(layout.TOPICS) == ["busy"]


@pytest.mark.row("L6")
async def test_a_topic_made_and_marked_while_a_controller_loads_is_deleted() -> None:
    office = Office()
    children = office.coordination.children

    async def right_after(path: str, *, watch: bool = False) -> Any:
        names = await children(path, watch=watch)
        if path in (layout.TOPICS, layout.DELETE_TOPICS):
            office.coordination.children = children  # type: ignore[method-assign]
            create_topic(office.ensemble, "t", [2, 3])
            office.ensemble.put(layout.delete_topic_path("t"))
        return names

    office.coordination.children = right_after  # type: ignore[method-assign]
    await office.start()
    await until(lambda: not office.ensemble.children(layout.DELETE_TOPICS))
    await office.idle()
    assert office.ensemble.children(layout.TOPICS) == []
    await office.candidate.close()


async def test_unreadable_nodes_are_skipped_until_somebody_mends_them(office: Office) -> None:
    office.ensemble.put(layout.topic_path("t"), b"garbage")
    office.ensemble.put(layout.broker_path(9), b"garbage")
    create_topic(office.ensemble, "u", [3])
    await office.led(3, TopicPartition("u", 0))
    assert "9" not in office.shown()["brokers"]
    create_topic(office.ensemble, "t", [2])
    await office.led(2)


@pytest.mark.row("A12", "D18")
@pytest.mark.parametrize("data", [b"", b"garbage", b'{"version":1,"partitions":[]}'])
@pytest.mark.parametrize("path", [layout.PREFERRED_ELECTION, layout.REASSIGN_PARTITIONS])
async def test_what_asks_for_nothing_is_removed_by_whoever_rules_next(
    path: str, data: bytes
) -> None:
    """The node was written while nobody ruled; until it goes nobody can ask for anything."""
    office = Office()
    office.ensemble.put(path, data)
    await office.candidate.start()
    await until(lambda: path not in office.ensemble.nodes)
    await office.candidate.close()


@pytest.mark.row("E2")
@pytest.mark.parametrize("name", ["two words", "ä", "x" * 250])
async def test_a_topic_that_brokers_would_refuse_to_hear_of_is_passed_over(
    office: Office, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Brokers refuse a request as a whole: one such topic, and they would hear of no other."""
    create_topic(office.ensemble, name, [2, 3])
    create_topic(office.ensemble, "t", [2, -3])
    for topic in ("u", "v"):
        create_topic(office.ensemble, topic, [3, 2])
        await office.led(3, TopicPartition(topic, 0))
    told = {
        p.tp.topic
        for request in office.candidate.channels.to(3, LeaderAndIsrRequest)
        for p in request.partitions
    }
    assert told == {"u", "v"}
    assert caplog.text.count(f"node of topic {name} is not readable") == 1


async def test_a_reconnect_reads_everything_again_and_finds_what_was_missed(office: Office) -> None:
    """S31: no event is counted on."""
    create_topic(office.ensemble, "t", [2, 3])
    await office.led(2)
    office.candidate.coordination.suspend()
    office.ensemble.delete(layout.broker_path(2))
    office.candidate.coordination.attach()
    await office.led(3)


@pytest.mark.row("A15", "H4", "M1")
async def test_unclean_election_follows_the_topics_configuration(office: Office) -> None:
    office.ensemble.put(
        layout.topic_config_path("t"),
        layout.encode_config({"unclean.leader.election.enable": "true", "of.a.later.kafka": "1"}),
    )
    create_topic(office.ensemble, "t", [2, 3])
    state = await office.led(2)
    alone = LeaderAndIsr(2, state.leader_epoch, (2,), state.controller_epoch, 0)
    office.ensemble.put(layout.state_path(T0), layout.encode_state(alone))
    office.ensemble.delete(layout.broker_path(2))
    assert (await office.led(3)).isr == (3,)
    assert office.shown()["unclean_elections"] == 1


@pytest.mark.row("R69")
async def test_a_topic_made_by_hand_is_given_an_id_that_stays(office: Office) -> None:
    text = layout.encode_topic(bytes(16), {0: ReplicaAssignment((2,))}).decode()
    office.ensemble.put(layout.topic_path("t"), text.replace('"topic_id"', '"other"').encode())
    await office.led(2)
    ((_, topic_id),) = office.candidate.channels.to(2, LeaderAndIsrRequest)[-1].topic_ids

    def id_in_zookeeper() -> bytes | None:
        return layout.decode_topic(office.ensemble.nodes[layout.topic_path("t")].data)[0]

    assert id_in_zookeeper() == topic_id
    office.ensemble.put(layout.topic_path("t"), b'{"version":1,"partitions":{"0":[2],"1":[3]}}')
    await office.led(3, T1)
    await office.idle()
    assert id_in_zookeeper() == topic_id


@pytest.mark.row("R9")
async def test_a_term_whose_session_was_replaced_decides_nothing_even_if_nobody_ended_it(
    office: Office,
) -> None:
    term = office.candidate.service._term
    assert term is not None
    coordination = office.candidate.coordination
    coordination.generation += 1
    with pytest.raises(StaleSession):
        await term.carry_out(RebalanceDue())
    coordination.generation -= 1
    await term.carry_out(RebalanceDue())
