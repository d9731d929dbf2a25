"""Elections, resignations and sessions of brokers that compete to be the controller."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from support.brokers.controller_bench import Candidate, create_topic, new_ensemble, state_of, until

from minikafka.base.errors import (
    CoordinationError,
    ErrorCode,
    KafkaError,
    NotConnected,
    OutcomeUnknown,
    StaleSession,
)
from minikafka.base.model import (
    LeaderAndIsr,
    LeaderAndIsrRequest,
    ReplicaAssignment,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.base.ports import Check, WatchKind
from minikafka.deciders.controller.events import UncleanElectionEnabled
from minikafka.simulation.clocks import ManualClock
from minikafka.simulation.loop import Process, context_of, run_seeded
from minikafka.simulation.zookeeper import ZooKeeperInMemory
from minikafka.zookeeper.nodes import layout

T0 = TopicPartition("t", 0)
Start = Callable[..., Awaitable[Candidate]]


@pytest.fixture
def ensemble() -> ZooKeeperInMemory:
    return new_ensemble()


@pytest.fixture
async def start(ensemble: ZooKeeperInMemory) -> AsyncIterator[Start]:
    started: list[Candidate] = []

    async def start_one(broker_id: int) -> Candidate:
        candidate = Candidate(ensemble, broker_id)
        started.append(candidate)
        return await candidate.start()

    yield start_one
    for candidate in started:
        await candidate.close()


def active(*candidates: Candidate) -> list[Candidate]:
    return [candidate for candidate in candidates if candidate.service.is_active]


def settled(candidate: Candidate) -> bool:
    term = candidate.service.summary()
    return term.get("state") == "Idle" and term.get("queue_size") == 0


@pytest.mark.row("A7", "A8", "D3", "R1")
async def test_first_broker_becomes_controller_with_epoch_one(
    ensemble: ZooKeeperInMemory, start: Start
) -> None:
    one = await start(1)
    await until(lambda: one.service.is_active)
    assert json.loads(ensemble.nodes[layout.CONTROLLER].data)["brokerid"] == 1
    assert ensemble.nodes[layout.CONTROLLER].owner == one.zookeeper.session_id
    assert ensemble.nodes[layout.CONTROLLER_EPOCH].data == b"1"
    assert (one.service.epoch, one.service.controller_id) == (1, 1)
    version = ensemble.nodes[layout.CONTROLLER_EPOCH].version
    assert one.service.fence() == Check(layout.CONTROLLER_EPOCH, version)


@pytest.mark.row("D1", "D4")
async def test_second_broker_knows_the_controller_and_refuses_controller_requests(
    ensemble: ZooKeeperInMemory, start: Start
) -> None:
    one = await start(1)
    await until(lambda: one.service.is_active)
    two = await start(2)
    await until(lambda: two.service.controller_id == 1)
    assert active(one, two) == [one]
    with pytest.raises(KafkaError) as error:
        two.service.fence()
    assert error.value.code is ErrorCode.NOT_CONTROLLER
    with pytest.raises(KafkaError):
        await two.service.controlled_shutdown(1, 1)


async def test_next_controller_elects_leaders_after_the_controller_died(
    ensemble: ZooKeeperInMemory, start: Start
) -> None:
    one, two = await start(1), None
    await until(lambda: one.service.is_active)
    two = await start(2)
    create_topic(ensemble, "t", [1, 2])
    await until(lambda: state_of(ensemble, T0))
    await one.die()
    await until(lambda: two.service.is_active)
    state = await until(lambda: (s := state_of(ensemble, T0)) and s.leader == 2 and s)
    assert (state.isr, state.leader_epoch, state.controller_epoch) == ((2,), 1, 2)


async def test_next_controller_logs_a_warning_if_the_former_controller_died(
    ensemble: ZooKeeperInMemory, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    one = await start(1)
    await until(lambda: one.service.is_active)
    two, three = await start(2), await start(3)
    await until(lambda: two.service.controller_id == three.service.controller_id == 1)
    await one.service.resign()
    await until(lambda: active(two, three))
    assert "died" not in caplog.text
    (died,) = active(two, three)
    left = three if died is two else two
    await until(lambda: left.service.controller_id == died.id)
    await died.die()
    await until(lambda: f"broker {died.id} died: session expired" in caplog.text)


@pytest.mark.parametrize("seed", range(30))
def test_topic_created_while_the_controller_loads_has_every_live_broker_in_its_isr(seed: int):
    """With only one broker in the ISR, the topic would have no leader once that broker dies."""

    async def scenario() -> None:
        ensemble = new_ensemble()
        loop = asyncio.get_running_loop()
        one, two = Candidate(ensemble, 1), Candidate(ensemble, 2)
        for candidate in (one, two):
            context = context_of(Process(f"broker {candidate.id}"))
            await loop.create_task(candidate.start(), context=context)
        create_topic(ensemble, "t", [1, 2])
        state = await until(lambda: state_of(ensemble, T0))
        assert state.isr == (1, 2)

    run_seeded(seed, scenario())


async def test_controller_refuses_to_list_reassignments_while_it_loads(
    ensemble: ZooKeeperInMemory, start: Start
) -> None:
    moving = {0: ReplicaAssignment((1, 2), adding=(2,), removing=(1,))}
    ensemble.put(layout.topic_path("t"), layout.encode_topic(b"0123456789abcdef", moving))
    ensemble.put(layout.state_path(T0), layout.encode_state(LeaderAndIsr(1, 0, (1,), 0, 0)))
    one = await start(1)
    refusals = set()
    async with asyncio.timeout(60):
        while not settled(one):
            await turn()
            try:
                assert list(await one.service.reassignments()) == [T0]
            except KafkaError as error:
                if one.service.is_active:
                    refusals.add(error.code)
    assert refusals == {ErrorCode.NOT_CONTROLLER}
    assert list(await one.service.reassignments()) == [T0]


async def turn() -> None:
    """Let the event loop run one turn."""
    await asyncio.sleep(0)


async def test_broker_becomes_a_controller_candidate_only_while_it_is_registered(
    ensemble: ZooKeeperInMemory,
) -> None:
    candidate = Candidate(ensemble, 1)
    await candidate.zookeeper.start()
    await candidate.service.start()
    await candidate.service._clock.sleep(120)
    assert layout.CONTROLLER not in ensemble.nodes
    await candidate.register()
    await until(lambda: candidate.service.is_active)
    await candidate.close()


@pytest.mark.row("D4", "R1")
async def test_two_candidates_are_never_both_the_controller(
    ensemble: ZooKeeperInMemory, start: Start
) -> None:
    """Another broker's multi arrives after this broker has read the epoch."""
    one = Candidate(ensemble, 1)
    two = await start(2)
    await until(lambda: two.service.is_active)
    await two.die()

    def overtaken(ops: Any) -> None:
        one.zookeeper.before_multi = lambda _: None
        ensemble.put(layout.CONTROLLER_EPOCH, b"2")
        ensemble.put(layout.CONTROLLER, layout.encode_controller(3, 0))

    one.zookeeper.before_multi = overtaken
    await one.start()
    await until(lambda: one.service.controller_id == 3)
    assert not one.service.is_active
    await one.close()


@pytest.mark.row("R1")
@pytest.mark.parametrize("fault", ["unanswered", "lost", "unsent"])
async def test_broker_becomes_controller_although_the_election_write_had_no_response(
    ensemble: ZooKeeperInMemory, fault: str
) -> None:
    """The broker reads the node and the epoch to see if its write was applied (S17). If not, it writes again."""
    one = Candidate(ensemble, 1)
    await one.connect()
    one.zookeeper.faults = [fault]
    await one.service.start()
    await until(lambda: one.service.is_active)
    assert one.service.epoch == 1
    assert ensemble.nodes[layout.CONTROLLER_EPOCH].data == b"1"
    await one.close()


@pytest.mark.row("D9", "E8")
async def test_deleted_controller_node_causes_a_new_election(
    ensemble: ZooKeeperInMemory, start: Start
) -> None:
    one = await start(1)
    await until(lambda: one.service.is_active)
    ensemble.delete(layout.CONTROLLER)
    await until(lambda: one.service.epoch == 2 and one.service.is_active)


@pytest.mark.row("D8", "E8")
async def test_overwritten_controller_node_makes_the_controller_resign(
    ensemble: ZooKeeperInMemory, start: Start
) -> None:
    one = await start(1)
    await until(lambda: one.service.is_active)
    ensemble.put(layout.CONTROLLER, layout.encode_controller(7, 0))
    await until(lambda: one.service.controller_id == 7)
    assert not one.service.is_active
    assert one.channels.open == {}
    ensemble.delete(layout.CONTROLLER)
    await until(lambda: one.service.is_active)


@pytest.mark.row("D8", "E8")
@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (layout.encode_controller(2, 0), 2),
        (layout.encode_controller(7, 0), 7),
        (b'{"version":2,"brokerid":2,"timestamp":"0","kraftControllerEpoch":-1}', 2),
        (b'{"version":1,"brokerid":-5,"timestamp":"0"}', -1),
        (b'{"version":1,"brokerid":"1","timestamp":"0"}', -1),
        (b"", -1),
        (b"\xff", -1),
    ],
    ids=["live", "absent", "of Kafka 3.9", "negative", "text", "empty", "binary"],
)
async def test_no_broker_is_the_controller_while_the_controller_node_is_overwritten(
    ensemble: ZooKeeperInMemory,
    start: Start,
    data: bytes,
    shown: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As in Kafka, the controller resigns, and no broker is elected until the node is deleted.

    Unlike in Kafka, the broker that is named in the node does not act as the controller.
    """
    one = await start(1)
    await until(lambda: one.service.is_active and settled(one))
    two = await start(2)
    await until(lambda: two.service.controller_id == 1)
    ensemble.put(layout.CONTROLLER, data)
    await until(lambda: not active(one, two) and one.service.controller_id == shown)
    await until(lambda: two.service.controller_id == shown)
    create_topic(ensemble, "t", [1, 2])
    for candidate in (one, two):
        with pytest.raises(KafkaError) as caught:
            await candidate.service.reassignments()
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        candidate.zookeeper.reconnect()
    await until(lambda: two.zookeeper.connection == 2 and one.zookeeper.connection == 2)
    await ensemble.time_for_requests()
    assert active(one, two) == []
    assert ensemble.nodes[layout.CONTROLLER].data == data
    assert ensemble.nodes[layout.CONTROLLER_EPOCH].data == b"1"
    assert caplog.text.count(f"{layout.CONTROLLER} is not readable") == (2 if shown == -1 else 0)
    ensemble.delete(layout.CONTROLLER)
    await until(lambda: len(active(one, two)) == 1 and state_of(ensemble, T0))
    assert active(one, two)[0].service.epoch == 2


@pytest.mark.row("D8", "E8")
async def test_overwriting_the_controller_node_with_the_same_broker_id_changes_nothing(
    ensemble: ZooKeeperInMemory, start: Start
) -> None:
    one = await start(1)
    await until(lambda: one.service.is_active and settled(one))
    ensemble.put(layout.CONTROLLER, layout.encode_controller(1, 99))
    create_topic(ensemble, "t", [1])
    await until(lambda: state_of(ensemble, T0))
    assert (one.service.is_active, one.service.epoch) == (True, 1)


@pytest.mark.row("D8", "E8")
async def test_replaced_controller_is_elected_again_when_the_controller_node_names_it(
    ensemble: ZooKeeperInMemory, start: Start
) -> None:
    one = await start(1)
    await until(lambda: one.service.is_active and settled(one))
    ensemble.put(layout.CONTROLLER, layout.encode_controller(7, 0))
    await until(lambda: not one.service.is_active)
    ensemble.put(layout.CONTROLLER, layout.encode_controller(1, 0))
    await until(lambda: one.service.is_active)
    assert one.service.epoch == 2


@pytest.mark.row("R2")
async def test_controller_resigns_without_writing_when_the_epoch_has_changed(
    ensemble: ZooKeeperInMemory, start: Start
) -> None:
    """The former controller is stopped by the epoch check in every multi, not by a watch (S15)."""
    one = await start(1)
    await until(lambda: settled(one))
    ensemble.put(layout.CONTROLLER_EPOCH, b"9")
    one.zookeeper.multis.clear()
    create_topic(ensemble, "t", [1])
    state = await until(lambda: state_of(ensemble, T0))
    assert state.controller_epoch == 10, "only the epoch after the foreign one was allowed to write"
    refused, *_ = one.zookeeper.multis
    assert isinstance(refused[0], Check)
    await until(lambda: one.service.is_active)
    assert one.service.epoch == 10


@pytest.mark.row("D10")
async def test_resigned_controller_watches_only_the_controller_node(
    ensemble: ZooKeeperInMemory, start: Start
) -> None:
    one = await start(1)
    create_topic(ensemble, "t", [1])
    await until(lambda: one.service.is_active and state_of(ensemble, T0))
    await until(lambda: settled(one))
    assert {
        (WatchKind.CHILDREN, layout.BROKER_IDS),
        (WatchKind.CHILDREN, layout.TOPICS),
        (WatchKind.CHILDREN, layout.DELETE_TOPICS),
        (WatchKind.CHILDREN, layout.ISR_CHANGES),
        (WatchKind.CHILDREN, layout.LOG_DIR_EVENTS),
        (WatchKind.DATA, layout.topic_path("t")),
        (WatchKind.DATA, layout.broker_path(1)),
    } < one.zookeeper.watched()
    ensemble.put(layout.CONTROLLER, layout.encode_controller(7, 0))
    await until(lambda: one.zookeeper.watched() == {(WatchKind.EXISTS, layout.CONTROLLER)})


@pytest.mark.row("E9", "R9")
async def test_controller_is_inactive_as_soon_as_its_zookeeper_session_has_expired(
    ensemble: ZooKeeperInMemory, start: Start
) -> None:
    one = await start(1)
    await until(lambda: settled(one))
    await one.zookeeper.expire()
    assert not one.service.is_active
    with pytest.raises(KafkaError):
        one.service.fence()
    await until(lambda: one.channels.open == {})
    await one.zookeeper.attach()
    await one.register()
    await until(lambda: one.service.is_active and one.service.epoch == 2)
    assert one.service.generation == 2


@pytest.mark.row("R9")
async def test_controller_sends_nothing_after_its_session_expired_during_a_write(
    ensemble: ZooKeeperInMemory, start: Start
) -> None:
    """The old term drops its remaining writes and requests (S19)."""
    one = await start(1)
    await until(lambda: settled(one))
    one.channels.sent.clear()

    async def lost_multi(*args: Any, **kwargs: Any) -> Any:
        one.zookeeper.multi = original  # type: ignore[method-assign]
        await one.zookeeper.expire()
        raise OutcomeUnknown

    original = one.zookeeper.multi
    one.zookeeper.multi = lost_multi  # type: ignore[method-assign]
    create_topic(ensemble, "t", [1])
    await until(lambda: one.zookeeper.multi == original)
    await until(lambda: not one.service.is_active)
    assert one.channels.sent == []
    assert state_of(ensemble, T0) is None
    await one.zookeeper.attach()
    await one.register()
    state = await until(lambda: state_of(ensemble, T0))
    assert state.controller_epoch == 2


async def test_controller_whose_session_expires_right_after_its_election_sends_nothing(
    ensemble: ZooKeeperInMemory,
) -> None:
    one = Candidate(ensemble, 1)
    multi = one.zookeeper.multi

    async def won_and_lost(*args: Any, **kwargs: Any) -> Any:
        one.zookeeper.multi = multi  # type: ignore[method-assign]
        stats = await multi(*args, **kwargs)
        await one.zookeeper.expire()
        await one.zookeeper.attach()
        return stats

    one.zookeeper.multi = won_and_lost  # type: ignore[method-assign]
    await one.start()
    await until(lambda: one.service.epoch == 1)
    await one.register()
    await until(lambda: one.service.is_active and one.service.epoch == 2 and settled(one))
    assert {request.controller_epoch for _, request in one.channels.sent} == {2}
    await one.close()


async def test_controller_that_never_started_can_resign(ensemble: ZooKeeperInMemory) -> None:
    one = Candidate(ensemble, 1)
    await one.zookeeper.start()
    await one.service.resign()


async def test_controller_resigns_at_once_while_zookeeper_is_unreachable(
    ensemble: ZooKeeperInMemory, start: Start
) -> None:
    one = await start(1)
    await until(lambda: settled(one))
    one.zookeeper.suspend()
    await one.service.resign()
    assert not one.service.is_active


async def test_candidate_that_waits_for_zookeeper_resigns_at_once(
    ensemble: ZooKeeperInMemory, start: Start
) -> None:
    one, two = await start(1), await start(2)
    await until(lambda: two.service.controller_id == 1)
    two.zookeeper.suspend()
    await asyncio.sleep(0.05)
    async with asyncio.timeout(5):
        await two.service.resign()
    assert active(one, two) == [one]


async def test_resignation_does_not_wait_for_zookeeper_if_it_is_lost_meanwhile(
    ensemble: ZooKeeperInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, campaigning = Candidate(ensemble, 1), asyncio.Event()
    lost = asyncio.Event()

    async def unanswered(*_: Any, **__: Any) -> Any:
        campaigning.set()
        await lost.wait()
        raise OutcomeUnknown

    monkeypatch.setattr(one.zookeeper, "multi", unanswered)
    await one.start()
    await campaigning.wait()
    resigning = asyncio.ensure_future(one.service.resign())
    await asyncio.sleep(0.05)
    assert not resigning.done(), "it may have been elected"
    one.zookeeper.suspend()
    lost.set()
    async with asyncio.timeout(5):
        await resigning
    await one.close()


async def test_controller_resigns_when_its_lease_expires(
    ensemble: ZooKeeperInMemory, start: Start
) -> None:
    one = await start(1)
    await until(lambda: settled(one))
    await one.zookeeper.lose_lease()
    assert not one.service.is_active
    await until(lambda: one.channels.open == {})
    await one.zookeeper.attach()
    await until(lambda: one.service.is_active)
    assert one.service.epoch == 2, "a new election is needed"


async def test_controller_keeps_its_epoch_after_a_short_disconnect_from_zookeeper(
    ensemble: ZooKeeperInMemory, start: Start
) -> None:
    one = await start(1)
    await until(lambda: settled(one))
    one.zookeeper.suspend()
    create_topic(ensemble, "t", [1])
    await one.zookeeper.attach()
    await until(lambda: state_of(ensemble, T0))
    assert one.service.epoch == 1


async def test_resignation_lets_another_broker_be_elected_at_once(
    ensemble: ZooKeeperInMemory, start: Start
) -> None:
    one = await start(1)
    await until(lambda: one.service.is_active)
    two = await start(2)
    await until(lambda: two.service.controller_id == 1)
    await one.service.resign()
    await until(lambda: two.service.is_active)
    assert not one.service.is_active
    assert two.service.epoch == 2


@pytest.mark.row("R12", "D4")
async def test_controller_resigns_when_its_state_machine_raises(
    ensemble: ZooKeeperInMemory, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """A controller in an illegal state resigns, so that no broker acts on half of its decisions (R12)."""
    one = await start(1)
    await until(lambda: settled(one))

    def broken(*_: Any) -> Any:
        raise RuntimeError("a bug")

    assert one.service._term is not None
    one.service._term.machine.handle = broken  # type: ignore[method-assign]
    create_topic(ensemble, "t", [1])
    await until(lambda: one.service.is_active and one.service.epoch == 2)
    await until(lambda: state_of(ensemble, T0))
    assert "a bug" in caplog.text


async def test_other_broker_is_elected_after_the_controller_has_failed(
    ensemble: ZooKeeperInMemory, start: Start
) -> None:
    """The failed controller pauses before it takes part in an election again, and has no state of its term left."""
    create_topic(ensemble, "t", [1])
    one, two = await start(1), await start(2)
    for failed, other in ((one, two), (two, one)):
        await until(lambda failed=failed: settled(failed), seconds=5)  # type: ignore[misc]
        assert failed.service.summary()["topic_count"] == 1

        def broken(*_: Any) -> Any:
            raise RuntimeError("a bug")

        assert failed.service._term is not None
        failed.service._term.machine.handle = broken  # type: ignore[method-assign]
        failed.service._term.put(UncleanElectionEnabled(None))
        await until(lambda other=other: other.service.is_active, seconds=5)  # type: ignore[misc]
        assert not failed.service.is_active
        assert failed.service.summary()["topic_count"] == 0
        with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
            failed.service.connection_lost(2, 1, 3)


@pytest.mark.parametrize(
    "error",
    [
        CoordinationError("the server has an error"),
        ValueError("a node"),
        NotConnected(),
        StaleSession(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_broker_takes_part_in_the_next_election_after_one_has_failed(
    ensemble: ZooKeeperInMemory, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    one = Candidate(ensemble, 1, clock=(clock := ManualClock()))
    multi, failures = one.zookeeper.multi, [error, error]

    async def fail_twice(*arguments: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return await multi(*arguments, **options)

    monkeypatch.setattr(one.zookeeper, "multi", fail_twice)
    await one.start()
    await until(lambda: clock.advance(100) or one.service.is_active, seconds=5)
    await one.close()


async def test_unreadable_epoch_node_is_logged_and_retried(
    ensemble: ZooKeeperInMemory, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    ensemble.put(layout.CONTROLLER_EPOCH, b"garbage")
    one = await start(1)
    await until(lambda: "garbage" in caplog.text)
    ensemble.put(layout.CONTROLLER_EPOCH, b"41")
    await until(lambda: one.service.is_active)
    assert one.service.epoch == 42


@pytest.mark.row("R18")
async def test_failover_sends_update_metadata_before_leader_and_isr(
    ensemble: ZooKeeperInMemory, start: Start
) -> None:
    create_topic(ensemble, "t", [1])
    one = await start(1)
    await until(lambda: state_of(ensemble, T0) and settled(one))
    kinds = [type(request) for id_, request in one.channels.sent if id_ == 1]
    assert kinds[0] is UpdateMetadataRequest
    assert LeaderAndIsrRequest in kinds


@pytest.mark.row("R63")
async def test_enabling_unclean_election_for_all_topics_queues_one_controller_event(
    ensemble: ZooKeeperInMemory, start: Start
) -> None:
    one = await start(1)
    await until(lambda: settled(one))
    events: list[object] = []
    one.service._term.put = events.append  # type: ignore[method-assign, union-attr, assignment]
    unclean = replace(one.config, unclean_leader_election_enable=True)
    one.service.set_broker_defaults(unclean)
    one.service.set_broker_defaults(replace(unclean, min_insync_replicas=2))
    assert events == [UncleanElectionEnabled(None)]


async def test_controller_is_inactive_when_a_new_session_begins_right_after_an_expiry(
    ensemble: ZooKeeperInMemory, start: Start
) -> None:
    one = await start(1)
    await until(lambda: settled(one))
    await one.zookeeper.expire()
    await one.zookeeper.attach()
    assert not one.service.is_active, "the term has not seen the end of its session yet"


async def test_controller_does_not_unwatch_nodes_after_its_session_was_replaced(
    ensemble: ZooKeeperInMemory, start: Start
) -> None:
    one = await start(1)
    await until(lambda: settled(one))
    removed: list[int] = []

    async def unwatch(kind: WatchKind, path: str) -> None:
        removed.append(one.zookeeper.generation)
        await one.zookeeper.connected()

    one.zookeeper.unwatch = unwatch
    await one.zookeeper.expire()
    await one.zookeeper.attach()
    await one.register()
    await until(lambda: one.service.epoch > 1)
    assert set(removed) == {1}, "a later session has none of the term's watches"
