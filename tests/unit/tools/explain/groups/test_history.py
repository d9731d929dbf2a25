"""The history of a group from the ledger lines of a coordinator: every rebalance with its cause and its phases."""

from __future__ import annotations

from collections import Counter

from support.deciders.group_world import REBALANCE, SESSION, subscription
from support.ledger.group_ledger import GroupLedgerWorld

from minikafka.base.errors import ErrorCode
from minikafka.tools.explain.groups.history import rebalances


def summaries(world: GroupLedgerWorld) -> list[str]:
    """Return the summary of each history entry. Assert that every ledger line belongs to exactly one entry."""
    entries = world.entries()
    names = Counter(line["n"] for entry in entries for line in entry.lines)
    assert names == Counter(range(1, len(world.lines) + 1))
    return [entry.summary() for entry in entries]


def test_history_entry_of_a_first_rebalance_shows_the_member_and_each_phase():
    world = GroupLedgerWorld(group_initial_rebalance_delay_ms=3_000)
    caller = world.send_join()
    world.advance(3_000)
    member = world.answers[caller].member_id
    world.advance(20)
    world.holds = True
    world.send_sync(member, 1, assignments={member: b""})
    world.advance(5)
    world.release()

    assert summaries(world) == [
        "client-1 joined; generation 1 of 1 member after 3.0 s (3.0 s until all had joined, client-1 last; "
        "20 ms until the leader client-1 sent the assignment; 5 ms to write it)"
    ]
    [entry] = world.entries()
    assert entry.as_json().items() >= {
        ("rebalance", True),
        ("trigger", "member joined"),
        ("member", member),
        ("generation", 1),
        ("finished", True),
        ("joining_ms", 3_000),
        ("assigning_ms", 20),
        ("writing_ms", 5),
        ("rebalance_ms", 3_025),
    }
    assert [line["line"] for line in entry.as_json()["lines"]] == ["1#1", "1#2", "1#3", "1#4"]


def test_history_entry_of_a_rebalance_names_each_member_that_joined_or_left():
    world = GroupLedgerWorld()
    first, second = world.stable(2)
    world.leave(second)
    world.send_join(client_id="other")
    world.send_join(first)
    world.sync(first, 3, assignments={})

    assert summaries(world)[-1].startswith(
        "client-2 left; other-3 joined (other at 127.0.0.1); generation 3 of 2 members after 0 ms"
    )


def test_history_names_the_member_that_was_removed_because_it_did_not_rejoin():
    world = GroupLedgerWorld()
    first, second = world.stable(2)
    world.send_join(second, protocols=(("range", subscription("t", "u")),))
    world.heartbeat(first, 2)
    for _ in range(REBALANCE // SESSION + 1):
        world.advance(SESSION - 1)
        world.heartbeat(first, 2)

    started, *others = summaries(world)[-1].split("; ")
    assert started == "client-2 subscribes to u"
    assert others[0] == "client-1 was removed (client at 127.0.0.1): did not rejoin in time"


def test_history_entry_of_the_last_expired_session_says_that_no_member_is_left():
    world = GroupLedgerWorld()
    world.stable()
    world.advance(SESSION)

    assert summaries(world)[-1] == (
        "the session of client-1 expired; no member is left in generation 2"
    )


def test_rebalance_interrupted_by_another_one_is_shown_as_not_finished():
    world = GroupLedgerWorld()
    world.join()
    world.send_join()

    joined = "1 member joined in 0 ms, client-1 last; leader client-1, protocol range"
    assert summaries(world) == [
        f"client-1 joined; {joined}; not finished: the next one began",
        "client-2 joined; not finished yet",
    ]
    assert [entry.is_open for entry in world.entries()] == [False, True]


def test_failed_write_of_the_assignment_begins_the_next_rebalance():
    world = GroupLedgerWorld()
    member = world.join().member_id
    world.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    world.send_sync(member, 1, assignments={})

    joined = "1 member joined in 0 ms, client-1 last; leader client-1, protocol range"
    assert summaries(world) == [
        f"client-1 joined; {joined}; not finished: the next one began",
        "the assignment could not be written; not finished yet",
    ]
    [failed] = [line for line in world.lines if line["fact"] == "append failed"]
    assert failed in world.entries()[0].lines


def test_move_of_the_coordinator_interrupts_a_rebalance():
    world = GroupLedgerWorld()
    world.stable()
    world.send_join()
    world.unload()
    world.lead(epoch=1)

    assert summaries(world)[1:] == [
        "client-2 joined; not finished: the coordinator moved",
        "broker 1 is no longer the coordinator",
        "broker 1 became the coordinator: 1 member, 0 committed offsets",
    ]


def test_history_names_static_members_by_their_instance_id():
    world = GroupLedgerWorld()
    world.static("one", "two")

    assert summaries(world)[-1].startswith("static member two joined")
    assert "the leader static member one sent the assignment" in summaries(world)[-1]
    assert "static member one last" in summaries(world)[-1]


def test_static_member_that_returns_causes_no_rebalance():
    world = GroupLedgerWorld()
    world.static("one")
    world.send_join(instance_id="one")

    assert summaries(world)[-1] == "static member one returned (client at 127.0.0.1) as one-2"
    assert len(rebalances(world.entries())) == 1


def test_history_records_a_repeated_refused_commit_at_the_counts_1_2_4_and_8():
    world = GroupLedgerWorld()
    member = world.stable()[0]
    for _ in range(9):
        assert world.commit({("t", 0): 1}, member, 7) == {ErrorCode.ILLEGAL_GENERATION}
    world.commit({("t", 0): 1}, "gone", 1)

    refused = f"commit of {member} for generation 7 refused: ILLEGAL_GENERATION"
    assert summaries(world)[1:] == [
        refused,
        f"{refused}, 2 times",
        f"{refused}, 4 times",
        f"{refused}, 8 times",
        "commit of gone for generation 1 refused: UNKNOWN_MEMBER_ID",
    ]


def test_commit_with_too_large_metadata_is_recorded_as_refused():
    world = GroupLedgerWorld(offset_metadata_max_bytes=3)
    world.commit({("t", 0): 1}, metadata="four")

    assert summaries(world) == ["commit of a client refused: OFFSET_METADATA_TOO_LARGE"]


def test_number_of_commit_refusals_kept_for_a_group_is_limited():
    world = GroupLedgerWorld()
    world.stable()
    for number in range(250):
        world.commit({("t", 0): 1}, f"m{number}", 1)

    assert len(world.group.refusals) <= 100


def test_rebalance_whose_first_ledger_lines_are_lost_is_shown():
    world = GroupLedgerWorld()
    world.stable()
    del world.lines[:2]
    for number, line in enumerate(world.lines, 1):
        line["n"] = number

    assert summaries(world)[0].startswith(
        "rebalance; generation 1 of 1 member after 0 ms (0 ms until"
    )


def test_removal_of_a_group_is_a_history_entry():
    world = GroupLedgerWorld()
    world.leave(*world.stable())
    world.delete("g")

    assert summaries(world)[-1] == "the group was removed: deleted"
