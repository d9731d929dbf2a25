"""Sessions: ids, timeouts, expiry at ticks, and the ephemeral nodes that go with them."""

from __future__ import annotations

import pytest
from support.zookeeper_state import TICK_MS, TIMEOUT_MS, Connection, World

from minikafka.zk.core import codes
from minikafka.zk.core.changes import SessionClosed, SessionOpened
from minikafka.zk.core.codes import Refused
from minikafka.zk.core.sessions import Sessions
from minikafka.zk.core.state import ServerState


@pytest.fixture
def world() -> World:
    return World()


def test_session_uses_up_a_zxid_when_it_opens_and_when_it_closes(world: World) -> None:
    client = world.connect()
    world.state.close_session(client.session_id, 4, 9)
    assert world.state.zxid == 2
    opened, closed = world.state.journal
    assert (opened.session_id, opened.change) == (client.session_id, SessionOpened(TIMEOUT_MS))
    assert (closed.cxid, closed.zxid, closed.change) == (4, 2, SessionClosed(()))


@pytest.mark.parametrize(("asked", "given"), [(-5, 2_000), (2_001, 2_001), (10**9, 20_000)])
def test_timeout_is_between_2_and_20_ticks(world: World, asked: int, given: int) -> None:
    assert world.state.open_session(asked, 0, 0).timeout_ms == given


def test_maximum_timeout_can_be_set() -> None:
    state = ServerState(tick_ms=TICK_MS, session_timeout_max_ms=60_000)
    assert state.open_session(10**9, 0, 0).timeout_ms == 60_000


def test_session_expires_at_the_tick_after_its_timeout(world: World) -> None:
    client = world.connect(now=300)
    assert world.state.expire(5_999, 0) == []
    assert [session.id for session in world.state.expire(6_000, 0)] == [client.session_id]
    assert world.state.expire(99_000, 0) == []


def test_touched_session_lives_for_another_timeout(world: World) -> None:
    client = world.connect()
    session = world.state.sessions.open[client.session_id]
    world.state.sessions.touch(session, 5_500)
    assert world.state.expire(10_999, 0) == []
    assert world.state.expire(11_000, 0) == [session]


def test_sessions_expire_in_the_order_of_their_times(world: World) -> None:
    late, early, same = world.connect(2_000), world.connect(0), world.connect(0)
    ended = [session.id for session in world.state.expire(60_000, 0)]
    assert ended == [early.session_id, same.session_id, late.session_id]


def test_end_of_a_session_deletes_its_ephemeral_nodes_with_one_zxid(world: World) -> None:
    client, watcher = world.connect(), world.connect()
    world.create(client, "/kept")
    world.create(client, "/kept/mine", flags=codes.EPHEMERAL)
    world.create(client, "/mine-", flags=codes.EPHEMERAL | codes.SEQUENTIAL)
    world.create(watcher, "/other", flags=codes.EPHEMERAL)
    world.state.add_watch(watcher, "/", 1)
    zxid = world.state.zxid
    world.state.expire(60_000, 9)
    assert world.state.zxid == zxid + 2, "one per session"
    assert {path for path in world.state.tree.nodes if "zoo" not in path} == {"/", "/kept"}
    assert world.state.tree.ephemerals == {}
    assert world.state.tree.nodes["/kept"].stat().pzxid == zxid + 1
    assert {path for _, path, at in watcher.events if at == zxid + 1} == {
        "/kept/mine",
        "/mine-0000000001",
    }
    assert world.state.journal[-2].change == SessionClosed(("/kept/mine", "/mine-0000000001"))


def test_end_of_a_session_that_is_over_uses_up_a_zxid(world: World) -> None:
    client = world.connect()
    world.state.close_session(client.session_id, 0, 0)
    world.state.close_session(client.session_id, 0, 0)
    assert world.state.zxid == 3
    assert world.state.journal[-1].change == SessionClosed(())


def test_client_of_an_ended_session_is_refused_everything(world: World) -> None:
    client = world.connect()
    world.state.close_session(client.session_id, 0, 0)
    for refused_call in (
        lambda: world.create(client, "/a"),
        lambda: world.state.multi(client, 0, [], 0),
        lambda: world.state.data(client, "/"),
        lambda: world.state.add_watch(client, "/", 0),
        lambda: world.state.set_watches(client, 0, (), (), ()),
    ):
        with pytest.raises(Refused) as refused:
            refused_call()
        assert refused.value.code == codes.SESSION_EXPIRED


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


def test_connection_without_a_session_is_refused(world: World) -> None:
    with pytest.raises(Refused) as refused:
        world.state.data(Connection(), "/")
    assert refused.value.code == codes.SESSION_EXPIRED
