"""Elections, resignations and sessions of the controller candidates."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from support.controller_bench import Candidate, create_topic, new_ensemble, state_of, until
from support.memory_coordination import Ensemble
from support.seeded_loop import Process, context_of, run_seeded

from minikafka.base.errors import ErrorCode, KafkaError, OutcomeUnknown
from minikafka.base.model import (
    LeaderAndIsr,
    LeaderAndIsrRequest,
    ReplicaAssignment,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.base.ports import Check, WatchKind
from minikafka.zk import layout

T0 = TopicPartition("t", 0)
Start = Callable[..., Awaitable[Candidate]]


@pytest.fixture
def ensemble() -> Ensemble:
    return new_ensemble()


@pytest.fixture
async def start(ensemble: Ensemble) -> AsyncIterator[Start]:
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
    term = candidate.service.describe()
    return term.get("state") == "Idle" and term.get("queue_size") == 0


@pytest.mark.row("A7", "A8", "D3", "R1")
async def test_the_first_candidate_wins_and_the_epoch_is_one(
    ensemble: Ensemble, start: Start
) -> None:
    one = await start(1)
    await until(lambda: one.service.is_active)
    assert json.loads(ensemble.nodes[layout.CONTROLLER].data)["brokerid"] == 1
    assert ensemble.nodes[layout.CONTROLLER].owner == one.coordination.session_id
    assert ensemble.nodes[layout.CONTROLLER_EPOCH].data == b"1"
    assert (one.service.epoch, one.service.controller_id) == (1, 1)
    version = ensemble.nodes[layout.CONTROLLER_EPOCH].version
    assert one.service.fence() == Check(layout.CONTROLLER_EPOCH, version)


@pytest.mark.row("D1", "D4")
async def test_the_others_learn_who_rules_and_refuse_to_act(
    ensemble: Ensemble, start: Start
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


async def test_a_dead_controller_is_replaced_and_the_new_one_elects_new_leaders(
    ensemble: Ensemble, start: Start
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


@pytest.mark.parametrize("seed", range(30))
def test_topic_created_while_the_controller_loads_has_every_registered_broker_in_its_isr(seed: int):
    """Otherwise the topic has no leader once the first broker dies."""

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


async def test_a_controller_that_loads_does_not_say_that_nothing_is_being_reassigned(
    ensemble: Ensemble, start: Start
) -> None:
    moving = {0: ReplicaAssignment((1, 2), adding=(2,), removing=(1,))}
    ensemble.put(layout.topic_path("t"), layout.encode_topic(b"0123456789abcdef", moving))
    ensemble.put(layout.state_path(T0), layout.encode_state(LeaderAndIsr(1, 0, (1,), 0, 0)))
    one = await start(1)
    refusals = set()
    async with asyncio.timeout(5):
        while not settled(one):
            await turn()
            try:
                assert list(one.service.reassignments()) == [T0]
            except KafkaError as error:
                if one.service.is_active:
                    refusals.add(error.code)
    assert refusals == {ErrorCode.NOT_CONTROLLER}
    assert list(one.service.reassignments()) == [T0]


async def turn() -> None:
    """One of the loop's."""
    await asyncio.sleep(0)


async def test_a_broker_campaigns_only_while_it_is_registered(ensemble: Ensemble) -> None:
    candidate = Candidate(ensemble, 1)
    await candidate.coordination.start()
    await candidate.service.start()
    await candidate.service._clock.sleep(120)
    assert layout.CONTROLLER not in ensemble.nodes
    await candidate.register()
    await until(lambda: candidate.service.is_active)
    await candidate.close()


@pytest.mark.row("D4", "R1")
async def test_two_racing_candidates_never_both_rule(ensemble: Ensemble, start: Start) -> None:
    """The other one's multi lands between the reading of the epoch and ours."""
    one = Candidate(ensemble, 1)
    two = await start(2)
    await until(lambda: two.service.is_active)
    await two.die()

    def overtaken(ops: Any) -> None:
        one.coordination.before_multi = lambda _: None
        ensemble.put(layout.CONTROLLER_EPOCH, b"2")
        ensemble.put(layout.CONTROLLER, layout.encode_controller(3, 0))

    one.coordination.before_multi = overtaken
    await one.start()
    await until(lambda: one.service.controller_id == 3)
    assert not one.service.is_active
    await one.close()


@pytest.mark.row("R1")
@pytest.mark.parametrize("fault", ["unanswered", "lost", "unsent"])
async def test_an_election_whose_answer_is_lost_is_read_back(
    ensemble: Ensemble, fault: str
) -> None:
    """S17: the node is of our session and the epoch is the one we attempted: we won, once."""
    one = Candidate(ensemble, 1)
    await one.connect()
    one.coordination.faults = [fault]
    await one.service.start()
    await until(lambda: one.service.is_active)
    assert one.service.epoch == 1
    assert ensemble.nodes[layout.CONTROLLER_EPOCH].data == b"1"
    await one.close()


@pytest.mark.row("D9", "E8")
async def test_deleting_the_controller_node_by_hand_leads_to_a_new_election(
    ensemble: Ensemble, start: Start
) -> None:
    one = await start(1)
    await until(lambda: one.service.is_active)
    ensemble.delete(layout.CONTROLLER)
    await until(lambda: one.service.epoch == 2 and one.service.is_active)


@pytest.mark.row("D8", "E8")
async def test_overwriting_the_controller_node_makes_the_controller_resign(
    ensemble: Ensemble, start: Start
) -> None:
    one = await start(1)
    await until(lambda: one.service.is_active)
    ensemble.put(layout.CONTROLLER, layout.encode_controller(7, 0))
    await until(lambda: one.service.controller_id == 7)
    assert not one.service.is_active
    assert one.channels.open == {}
    ensemble.delete(layout.CONTROLLER)
    await until(lambda: one.service.is_active)


@pytest.mark.row("R2")
async def test_a_controller_whose_epoch_moved_resigns_without_writing(
    ensemble: Ensemble, start: Start
) -> None:
    """S15: the check in every multi, not the watch, is what stops it."""
    one = await start(1)
    await until(lambda: settled(one))
    ensemble.put(layout.CONTROLLER_EPOCH, b"9")
    one.coordination.multis.clear()
    create_topic(ensemble, "t", [1])
    state = await until(lambda: state_of(ensemble, T0))
    assert state.controller_epoch == 10, "only the epoch after the foreign one was allowed to write"
    refused, *_ = one.coordination.multis
    assert isinstance(refused[0], Check)
    await until(lambda: one.service.is_active)
    assert one.service.epoch == 10


@pytest.mark.row("D10")
async def test_resignation_leaves_no_watch_of_the_controller_behind(
    ensemble: Ensemble, start: Start
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
    } < one.coordination.watched()
    ensemble.put(layout.CONTROLLER, layout.encode_controller(7, 0))
    await until(lambda: one.coordination.watched() == {(WatchKind.EXISTS, layout.CONTROLLER)})


@pytest.mark.row("E9", "R9")
async def test_expiry_ends_the_term_at_once_and_the_next_session_begins_from_nothing(
    ensemble: Ensemble, start: Start
) -> None:
    one = await start(1)
    await until(lambda: settled(one))
    one.coordination.expire()
    assert not one.service.is_active
    with pytest.raises(KafkaError):
        one.service.fence()
    await until(lambda: one.channels.open == {})
    one.coordination.attach()
    await one.register()
    await until(lambda: one.service.is_active and one.service.epoch == 2)
    assert one.service.generation == 2


@pytest.mark.row("R9")
async def test_expiry_in_the_middle_of_a_write_lets_nothing_of_the_old_term_through(
    ensemble: Ensemble, start: Start
) -> None:
    """S19: whatever the old term still had to write or send is dropped."""
    one = await start(1)
    await until(lambda: settled(one))
    one.channels.sent.clear()

    async def lost_multi(*args: Any, **kwargs: Any) -> Any:
        one.coordination.multi = original  # type: ignore[method-assign]
        one.coordination.expire()
        raise OutcomeUnknown

    original = one.coordination.multi
    one.coordination.multi = lost_multi  # type: ignore[method-assign]
    create_topic(ensemble, "t", [1])
    await until(lambda: one.coordination.multi == original)
    await until(lambda: not one.service.is_active)
    assert one.channels.sent == []
    assert state_of(ensemble, T0) is None
    one.coordination.attach()
    await one.register()
    state = await until(lambda: state_of(ensemble, T0))
    assert state.controller_epoch == 2


async def test_a_session_that_ends_right_after_the_election_lets_that_term_send_nothing(
    ensemble: Ensemble,
) -> None:
    one = Candidate(ensemble, 1)
    multi = one.coordination.multi

    async def won_and_lost(*args: Any, **kwargs: Any) -> Any:
        one.coordination.multi = multi  # type: ignore[method-assign]
        stats = await multi(*args, **kwargs)
        one.coordination.expire()
        one.coordination.attach()
        return stats

    one.coordination.multi = won_and_lost  # type: ignore[method-assign]
    await one.start()
    await until(lambda: one.service.epoch == 1)
    await one.register()
    await until(lambda: one.service.is_active and one.service.epoch == 2 and settled(one))
    assert {request.controller_epoch for _, request in one.channels.sent} == {2}
    await one.close()


async def test_a_candidate_that_never_started_can_be_closed(ensemble: Ensemble) -> None:
    one = Candidate(ensemble, 1)
    await one.coordination.start()
    await one.service.resign()


async def test_closing_while_zookeeper_is_away_does_not_wait_for_it(
    ensemble: Ensemble, start: Start
) -> None:
    one = await start(1)
    await until(lambda: settled(one))
    one.coordination.suspend()
    await one.service.resign()
    assert not one.service.is_active


async def test_a_lost_lease_makes_the_controller_resign_before_anyone_can_follow_it(
    ensemble: Ensemble, start: Start
) -> None:
    one = await start(1)
    await until(lambda: settled(one))
    one.coordination.suspend()
    one.coordination.lose_lease()
    assert not one.service.is_active
    await until(lambda: one.channels.open == {})
    one.coordination.attach()
    await until(lambda: one.service.is_active)
    assert one.service.epoch == 2, "it rules again only by a new election"


async def test_a_short_disconnect_keeps_the_term(ensemble: Ensemble, start: Start) -> None:
    one = await start(1)
    await until(lambda: settled(one))
    one.coordination.suspend()
    create_topic(ensemble, "t", [1])
    one.coordination.attach()
    await until(lambda: state_of(ensemble, T0))
    assert one.service.epoch == 1


async def test_closing_hands_the_controllership_over_at_once(
    ensemble: Ensemble, start: Start
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
async def test_a_machine_that_breaks_is_dropped_and_the_term_with_it(
    ensemble: Ensemble, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """R12: an illegal state of the controller itself ends in resignation, not in a half-told cluster."""
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


async def test_garbage_in_the_epoch_node_is_reported_and_waited_out(
    ensemble: Ensemble, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    ensemble.put(layout.CONTROLLER_EPOCH, b"garbage")
    one = await start(1)
    await until(lambda: "garbage" in caplog.text)
    ensemble.put(layout.CONTROLLER_EPOCH, b"41")
    await until(lambda: one.service.is_active)
    assert one.service.epoch == 42


@pytest.mark.row("R18")
async def test_failover_tells_every_broker_the_metadata_and_then_its_roles(
    ensemble: Ensemble, start: Start
) -> None:
    create_topic(ensemble, "t", [1])
    one = await start(1)
    await until(lambda: state_of(ensemble, T0) and settled(one))
    kinds = [type(request) for id_, request in one.channels.sent if id_ == 1]
    assert kinds[0] is UpdateMetadataRequest
    assert LeaderAndIsrRequest in kinds
