"""Findings about a group, from the coordinator's report, the ledger, the partitions and the lags."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.deciders.group_world import REBALANCE, SESSION, subscription
from support.ledger.group_ledger import BROKER, GroupLedgerWorld

from minikafka.base.errors import ErrorCode
from minikafka.base.model import ReplicaAssignment, TopicPartition
from minikafka.deciders.groups.events import LeavingMember
from minikafka.tools.explain.evidence import DOWN, BrokerEvidence, Nodes, PartitionEvidence
from minikafka.tools.explain.finding import Finding
from minikafka.tools.explain.groups.evidence import EarlierLag, Lag
from minikafka.tools.explain.groups.why import UNWRITTEN_MS, explain_group
from minikafka.tools.explain.past import Past as PartitionPast

T3 = TopicPartition("t", 3)
OTHER = (("range", subscription("t", "u")),)


def names(found: list[Finding], problems: bool = True) -> list[str]:
    return [finding.name for finding in found if finding.is_problem or not problems]


def texts(finding: Finding) -> list[str]:
    """Return the texts of a finding and all its causes, in the order in which they are printed."""
    return [finding.text, *(text for cause in finding.because for text in texts(cause))]


def offline(tp: TopicPartition) -> PartitionEvidence:
    """Return the `PartitionEvidence` (all data) of a partition whose only replica is on broker 2, which is down."""
    nodes = Nodes(None, (1,), ReplicaAssignment((2,)), None, False, None)
    return PartitionEvidence(tp, {2: BrokerEvidence(2, DOWN)}, nodes, PartitionPast([], tp))


def problem(world: GroupLedgerWorld, **more: Any) -> Finding:
    """Return the only finding that is a problem. Fails if there are several or none."""
    [found] = [finding for finding in world.why(**more) if finding.is_problem]
    return found


def test_stable_group_has_no_problem():
    world = GroupLedgerWorld()
    world.stable(3)

    assert world.why() == []


def test_former_coordinator_of_a_group_is_not_believed():
    world = GroupLedgerWorld()
    world.stable(3)
    [newest] = world.evidence().answers.values()
    former = {**newest, "group": None, "leader_epoch": 3}
    answers = {7: former, 8: {**newest, "leader_epoch": 4}, 9: {**newest, "error": 16}}
    evidence = replace(world.evidence(), answers=answers)
    assert (evidence.coordinator, evidence.report) == (8, newest["group"])


def test_corrupt_batch_in_the_groups_partition_is_a_problem():
    world = GroupLedgerWorld()
    world.stable(1)
    [(broker, answer)] = world.evidence().answers.items()
    batch = {"topic": "__consumer_offsets", "partition": 3, "offset": 9, "file": "/d/f.log"}
    answers = {broker: {**answer, "skipped_batches": [{**batch, "error": "wrong CRC"}]}}
    [found] = explain_group(replace(world.evidence(), answers=answers))
    assert found.name == "corrupt-records"
    assert "__consumer_offsets-3 at offset 9 in /d/f.log" in found.text
    assert found.is_problem


def test_explanation_of_a_rebalance_names_the_member_that_does_not_rejoin():
    world = GroupLedgerWorld()
    first, second = world.stable(2, client_id="app")
    world.send_join(second, protocols=OTHER)
    world.advance(6_000)
    world.heartbeat(first, 2)
    world.advance(1_000)

    found = problem(world)

    assert names([found]) == ["rebalancing"]
    assert texts(found) == [
        "the group has been rebalancing for 7.0 s: app-2 subscribes to u",
        "app-1 (app at 127.0.0.1) has not joined again; it is removed in 53.0 s",
        "its last request came 1.0 s ago: it sends heartbeats, but its application does not poll "
        "(probably it is busy with records)",
    ]
    assert [str(event) for event in found.events] == [f"1#{len(world.lines)}"]


def test_cause_of_a_previous_rebalance_is_not_reported_for_the_current_one():
    world = GroupLedgerWorld()
    first, second = world.stable(2, client_id="app")
    world.advance(5_000)
    world.heartbeat(first, 2)
    written = len(world.lines)
    world.send_join(second, protocols=OTHER)
    world.advance(7_000)
    del world.lines[written:]

    found = problem(world)

    assert found.text == "the group has been rebalancing for 7.0 s"
    assert found.events == ()


def test_explanation_of_a_rebalance_has_its_cause_even_if_the_ledger_shows_its_end():
    world = GroupLedgerWorld()
    world.advance(5_000)
    member = world.join().member_id
    world.advance(6_000)
    answered = world.evidence()
    world.send_sync(member, 1, assignments={})
    lines = world.evidence().history

    [found] = explain_group(replace(answered, history=lines))

    assert lines[-1].find("assignment written") is not None
    assert found.text.startswith("the group has been rebalancing for 6.0 s: client-1 joined")


def test_explanation_of_a_rebalance_says_how_long_a_member_has_been_silent():
    world = GroupLedgerWorld()
    _, second = world.stable(2)
    world.send_join(second, protocols=OTHER)
    world.advance(SESSION - 1_000)

    found = problem(world)

    assert texts(found)[1:] == [
        "client-1 (client at 127.0.0.1) has not joined again; it is removed in 1.0 s",
        "its last request came 9.0 s ago; without a heartbeat its session of 10.0 s ends then",
    ]
    world.advance(999)
    assert names([problem(world)]) == ["rebalancing"]
    world.advance(2)
    assert not any("has not joined again" in text for f in world.why() for text in texts(f))


def test_silent_member_is_removed_at_the_end_of_a_rebalance_that_is_earlier():
    world = GroupLedgerWorld()
    _, second = world.stable(2, rebalance_timeout_ms=8_000)
    world.send_join(second, protocols=OTHER, rebalance_timeout_ms=8_000)
    world.advance(7_000)

    found = problem(world)

    assert texts(found)[1:] == [
        "client-1 (client at 127.0.0.1) has not joined again; it is removed in 1.0 s",
        "its last request came 7.0 s ago; then the rebalance ends without it (max.poll.interval.ms)",
    ]


def test_rebalance_is_no_problem_until_members_had_time_to_heartbeat():
    world = GroupLedgerWorld()
    _, second = world.stable(2)
    world.send_join(second, protocols=OTHER)

    assert names(world.why(), problems=False) == ["rebalancing"]
    assert names(world.why()) == []


def test_initial_rebalance_delay_is_no_problem():
    world = GroupLedgerWorld(group_initial_rebalance_delay_ms=9_000)
    world.send_join()
    world.advance(7_000)

    [found] = world.why()

    assert not found.is_problem
    assert texts(found)[1] == (
        "it waits 2.0 s more for further members (group.initial.rebalance.delay.ms)"
    )


def test_explanation_of_a_rebalance_names_the_leader_that_sent_no_assignment():
    world = GroupLedgerWorld()
    world.join()
    world.advance(SESSION - 1)

    [found] = world.why()

    assert texts(found)[1:] == [
        "the leader, client-1 (client at 127.0.0.1), has not sent the assignment"
    ]


def test_rebalance_blocked_by_an_offline_offsets_partition_is_explained_by_it():
    world = GroupLedgerWorld()
    member = world.join().member_id
    world.holds = True
    world.send_sync(member, 1, assignments={})
    world.advance(SESSION - 1)
    home = TopicPartition("__consumer_offsets", 0)

    [found] = world.why(home=offline(home))

    assert names([found, *found.because, *found.because[0].because]) == [
        "rebalancing",
        "writing-assignment",
        "offline",
    ]


def test_client_that_repeatedly_joins_and_expires_is_a_rebalance_loop():
    world = GroupLedgerWorld()
    steady = world.stable(client_id="steady")[0]
    for _ in range(3):
        world.send_join(client_id="crashing")
        world.send_join(steady)
        world.sync(steady, world.group.generation, assignments={})
        for _ in range(SESSION // 4_000 + 1):
            world.advance(4_000)
            if world.state == "PreparingRebalance":
                world.send_join(steady)
                world.sync(steady, world.group.generation, assignments={})
            else:
                world.heartbeat(steady, world.group.generation)

    found = problem(world)

    assert found.name == "rebalance-loop"
    assert texts(found) == [
        "the group rebalanced 7 times in the last 5 min",
        "crashing at 127.0.0.1 was removed 3 times (3 times session expired) and joined again 2 times",
    ]


def test_member_that_changes_its_metadata_repeatedly_is_a_rebalance_loop():
    world = GroupLedgerWorld()
    member = world.stable()[0]
    for topic in "abc":
        joined = world.join(member, protocols=(("range", subscription(topic)),))
        world.sync(member, joined.generation, assignments={})
    world.topics.append("c")

    found = problem(world)

    assert texts(found) == [
        "the group rebalanced 4 times in the last 5 min",
        "3 times because of client-1: member changed its metadata; last: client-1 subscribes to c; "
        "no longer subscribes to b",
    ]


def test_members_that_join_one_after_the_other_are_not_a_rebalance_loop():
    world = GroupLedgerWorld()
    world.stable(20)

    assert world.why() == []


def test_client_that_keeps_leaving_causes_a_rebalance_loop_if_other_members_wait():
    world = GroupLedgerWorld()
    steady = world.stable(client_id="steady")[0]
    for _ in range(3):
        caller = world.send_join(client_id="restless")
        world.send_join(steady)
        world.leave(LeavingMember(world.answers[caller].member_id, None, "poll timeout"))
        world.send_join(steady)

    found = problem(world)

    assert texts(found)[1] == (
        'restless at 127.0.0.1 was removed 3 times (3 times member left ("poll timeout")) and joined '
        "again 2 times"
    )


def test_sole_consumer_that_joins_and_leaves_repeatedly_causes_no_rebalance_loop():
    world = GroupLedgerWorld()
    for _ in range(5):
        world.leave(*world.stable())

    assert names(world.why()) == []


def test_rebalance_loop_that_has_ended_is_not_reported():
    world = GroupLedgerWorld()
    member = world.stable(session_timeout_ms=1_000_000)[0]
    for topic in "abc":
        joined = world.join(
            member, protocols=(("range", subscription(topic)),), session_timeout_ms=1_000_000
        )
        world.sync(member, joined.generation, assignments={})
    world.topics.append("c")
    assert names(world.why()) == ["rebalance-loop"]
    world.advance(300_001)

    assert names(world.why()) == []


def test_explanation_of_a_refused_commit_says_that_the_member_was_removed():
    world = GroupLedgerWorld()
    first, second = world.stable(2)
    for _ in range(3):
        world.advance(4_000)
        world.heartbeat(second, 2)
    world.send_join(second)
    world.sync(second, world.group.generation, assignments={})
    world.commit({("t", 0): 5}, first, 2)

    found = problem(world)

    assert names([found]) == ["commit-refused"]
    assert texts(found) == [
        "commit of client-1 for generation 2 refused: UNKNOWN_MEMBER_ID",
        "client-1 was removed (client at 127.0.0.1): session expired",
    ]


def test_explanation_of_a_refused_commit_ignores_a_later_removal_of_the_member():
    world = GroupLedgerWorld()
    first, second = world.stable(2)
    world.commit({("t", 0): 5}, first, 1)
    for _ in range(3):
        world.advance(4_000)
        world.heartbeat(second, 2)
    world.send_join(second)
    world.sync(second, world.group.generation, assignments={})

    found = problem(world)

    assert texts(found) == [
        "commit of client-1 for generation 1 refused: ILLEGAL_GENERATION",
        "the group was in generation 2: the member missed a rebalance",
    ]


def test_explanation_of_a_commit_of_an_old_generation_names_the_current_one():
    world = GroupLedgerWorld()
    member = world.stable()[0]
    world.commit({("t", 0): 5}, member, 0)

    [found] = world.why()

    assert texts(found)[1:] == ["the group was in generation 1: the member missed a rebalance"]


def test_commit_refused_during_a_rebalance_is_not_reported_as_a_problem():
    world = GroupLedgerWorld()
    member = world.join().member_id
    world.commit({("t", 0): 5}, member, 1)

    assert names(world.why(), problems=False) == ["rebalancing", "commit-refused"]
    assert names(world.why()) == []


def test_refused_commit_of_a_client_outside_the_group_is_reported():
    world = GroupLedgerWorld()
    world.stable()
    world.commit({("t", 0): 5})

    [found] = world.why()

    assert texts(found) == [
        "commit of a client refused: UNKNOWN_MEMBER_ID",
        "the group has members, and the client is none of them",
    ]


def test_explanation_of_a_commit_that_cannot_be_appended_names_the_error():
    world = GroupLedgerWorld()
    member = world.stable()[0]
    world.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    world.commit({("t", 0): 5}, member, 1)

    [found] = world.why()

    assert found.text == (
        "1 commit could not be written to __consumer_offsets, last: NOT_ENOUGH_REPLICAS"
    )


def test_failed_append_of_a_commit_is_reported_until_a_commit_is_appended():
    world = GroupLedgerWorld()
    world.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    world.commit({("t", 0): 5})
    assert names(world.why()) == ["commit-not-written"]
    world.append_error = ErrorCode.NONE
    world.advance(1_000)
    world.commit({("t", 0): 5})
    assert world.why() == []


def test_failed_append_of_a_commit_is_no_longer_reported_after_a_while():
    world = GroupLedgerWorld()
    world.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    world.commit({("t", 0): 5})
    world.advance(UNWRITTEN_MS)
    assert world.why() == []


def test_explanation_names_a_partition_whose_leader_is_down():
    world = GroupLedgerWorld()
    world.stable()

    [found] = world.why(away={T3: offline(T3)})

    assert names([found, *found.because]) == ["leader-away", "offline"]
    assert found.text == "t-3 has no leader that answers: nobody can read it"
    assert found.blocking_brokers() == set()
    many = {TopicPartition("t", number): offline(T3) for number in range(8)}
    assert len(world.why(away=many)) == 6


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({}, "no-broker"),
        ({1: ErrorCode.NOT_COORDINATOR}, "no-coordinator"),
        ({1: ErrorCode.NOT_COORDINATOR, 2: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}, "loading"),
    ],
)
def test_explanation_of_a_group_without_coordinator_names_the_offsets_partition(answers, expected):
    world = GroupLedgerWorld()
    world.stable()
    found = {
        id_: {"partition": 7, "error": int(code), "group": None} for id_, code in answers.items()
    }

    [finding] = world.why(answers=found, home=offline(TopicPartition("__consumer_offsets", 7)))

    assert names([finding, *finding.because]) == [expected, "offline"]
    if answers:
        assert "__consumer_offsets-7" in finding.text


def test_explanation_of_a_group_says_that_the_offsets_topic_does_not_exist():
    world = GroupLedgerWorld()
    tp = TopicPartition("__consumer_offsets", 0)
    nodes = Nodes(None, (1,), None, None, False, None)
    missing = PartitionEvidence(tp, {}, nodes, PartitionPast([], tp))
    answer = {"partition": 0, "error": int(ErrorCode.NOT_COORDINATOR), "group": None}

    [finding] = world.why(answers={BROKER: answer}, home=missing)

    assert texts(finding)[1:] == ["the topic __consumer_offsets does not exist yet"]


def lag(*past: int, committed_ago: int = 1_000) -> dict[str, Any]:
    now = 1_700_000_100_000
    lags = tuple(EarlierLag(now - 1_000 * (len(past) - i), each) for i, each in enumerate(past))
    return {"lags": [Lag(T3, 10, now - committed_ago, 50, 40, now, lags)]}


def test_explanation_of_a_growing_lag_names_the_partition():
    world = GroupLedgerWorld()
    world.stable()

    [found] = world.why(**lag(5, 10, 20, 40))

    assert found.name == "lag-grows"
    assert found.text == (
        "the lag of t-3 grows: 5 records 4.0 s ago, 40 now; no member is assigned to it"
    )


def test_partition_without_commits_is_stuck():
    world = GroupLedgerWorld()
    world.stable()

    [found] = world.why(**lag(committed_ago=130_000))

    assert found.name == "lag-stuck"
    assert found.text == (
        "t-3 has 40 records after the committed offset 10, and no commit for 2 min; "
        "no member is assigned to it"
    )


def test_lag_that_does_not_grow_is_no_problem():
    world = GroupLedgerWorld()
    world.stable()

    [found] = world.why(**lag(40, 20, 40, 20))

    assert not found.is_problem
    assert (
        found.text
        == "the lag of 1 partition is 40 records in all; it did not grow from commit to commit"
    )


def test_explanation_names_a_subscribed_topic_that_does_not_exist():
    world = GroupLedgerWorld()
    world.stable(protocols=(("range", subscription("t", "typo")),))

    assert problem(world).text == "members subscribe to typo, which does not exist"


def test_members_without_partitions_are_counted_but_are_no_problem():
    world = GroupLedgerWorld()
    world.sync(world.join().member_id, 1, assignments={})

    [found] = world.why()

    assert (found.text, found.is_problem) == ("1 of 1 member have no partition", False)


def test_unknown_lag_is_reported_but_not_as_a_problem():
    world = GroupLedgerWorld()
    world.stable()

    [found] = world.why(lags=None)

    assert (found.name, found.is_problem) == ("lag-unknown", False)


def test_group_without_members_is_a_problem_only_with_lag():
    world = GroupLedgerWorld()
    world.leave(*world.stable())
    world.advance(REBALANCE)

    [found] = world.why()
    with_lag = world.why(**lag(40, 20, 40, 20))

    assert found.text == "the group has had no member for 60.0 s: client-1 left"
    assert not found.is_problem
    assert names(with_lag) == ["no-members"]
