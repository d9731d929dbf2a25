"""Sessions beyond the scenarios: their ids, a maximum timeout that is set, recovery."""

from __future__ import annotations

import pytest
from support.zookeeper.state import TICK_MS, TIMEOUT_MS, World

from minikafka.zookeeper.server.core.sessions import Sessions
from minikafka.zookeeper.server.core.state import ServerState


@pytest.fixture
def world() -> World:
    return World()


def test_maximum_timeout_can_be_set() -> None:
    state = ServerState(tick_ms=TICK_MS, session_timeout_max_ms=60_000)
    assert state.open_session(10**9, 0, 0).timeout_ms == 60_000


def test_ids_of_sessions_are_never_given_again() -> None:
    sessions = Sessions(TICK_MS, first_id=5)
    sessions.add(9, TIMEOUT_MS)
    assert (sessions.next_id(), sessions.next_id()) == (10, 11)


def test_removed_session_is_in_no_bucket() -> None:
    sessions = Sessions(TICK_MS, first_id=1)
    session = sessions.add(sessions.next_id(), TIMEOUT_MS)
    sessions.touch(session, 0)
    assert sessions.buckets() == {6_000: (session.id,)}
    assert sessions.remove(session.id) is session
    assert sessions.remove(session.id) is None
    assert sessions.buckets() == {}


def test_session_that_was_recovered_does_not_expire_before_it_is_touched() -> None:
    state = ServerState(tick_ms=TICK_MS)
    world = World()
    client = world.connect()
    state.replay(world.state.journal[0])
    assert state.expire(10**9, 0) == []
    state.sessions.touch(state.sessions.open[client.session_id], 10**9)
    assert len(state.expire(2 * 10**9, 0)) == 1


def test_server_without_a_store_keeps_no_journal() -> None:
    state = ServerState(tick_ms=TICK_MS, keeps_journal=False)
    session = state.open_session(TIMEOUT_MS, 0, 0)
    state.close_session(session.id, 0, 0)
    assert (state.zxid, state.journal) == (2, [])
