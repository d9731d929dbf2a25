"""The findings of `why` for each problem that a partition can have."""

from __future__ import annotations

import pytest
from support.ledger.ledger_lines import NAMES, Scene, follower

from minikafka.base.model import LeaderAndIsr, ReplicaAssignment
from minikafka.tools.cluster.observation.causes import Cause
from minikafka.tools.explain.evidence import DOWN, PAUSED, SILENT, Nodes, ReplicaFiles
from minikafka.tools.explain.finding import Finding
from minikafka.tools.explain.why import explain


@pytest.fixture
def scene() -> Scene:
    return Scene()


def report(scene: Scene, offset: int | None = None) -> str:
    """Return the findings as an indented list, with their events."""
    return "\n".join(
        line for finding in explain(scene.evidence(), offset) for line in tree(finding, 0)
    )


def tree(finding: Finding, depth: int) -> list[str]:
    events = f"  [{', '.join(map(str, finding.events))}]" if finding.events else ""
    lines = [f"{'  ' * depth}{finding.text}{events}"]
    return [*lines, *(line for reason in finding.because for line in tree(reason, depth + 1))]


def names(findings: list[Finding]) -> list[str]:
    return [finding.name for finding in findings]


def test_healthy_partition_has_no_findings(scene: Scene) -> None:
    assert report(scene) == ""


def test_dead_follower_is_reported_with_the_events_of_its_failure(scene: Scene) -> None:
    scene.ledger.state("1-1", 5, 1, 0, 1, 2, 3)
    scene.ledger.live("1-2", 1, 2)
    scene.ledger.state("1-2", 6, 1, 1, 1, 2)
    scene.in_sync(1, 2).down(3)
    assert report(scene) == (
        "t-0 is under-replicated: 2 of 3 replicas are in sync (ISR 1,2)\n"
        "  replica 3 is not in the ISR  [1-2 1#3]\n"
        "    broker 3 is down: it has no process  [1-2 1#2]"
    )


def test_suspect_is_reported_with_the_event_of_its_suspicion(scene: Scene) -> None:
    scene.ledger.live("1-1", 1, 2, 3)
    scene.ledger.event("BrokerSuspected", "1-2", of=3, broker_epoch=7, evidence="refused")
    scene.in_sync(1, 2, 3).down(3)
    assert "broker 3 is down: it has no process  [1-2 1#2]" in report(scene)
    scene.ledger.event("SuspicionEnded", "1-3", of=3, broker_epoch=7)
    assert report(scene).endswith("broker 3 is down: it has no process")


@pytest.mark.parametrize(("process", "state"), [(DOWN, "is down"), (PAUSED, "is paused")])
def test_follower_that_just_died_is_reported_while_it_is_in_the_isr(
    scene: Scene, process: str, state: str
) -> None:
    scene.in_sync(1, 2, 3).down(3, process)
    lines = report(scene).splitlines()
    assert lines[0] == "t-0 is under-replicated: 2 of 3 replicas are in sync (ISR 1,2,3)"
    assert lines[1] == "  replica 3 is still in the ISR but does not follow"
    assert lines[2].startswith(f"    broker 3 {state}")


def test_lagging_follower_is_reported_with_its_lag(scene: Scene) -> None:
    scene.ledger.state("1-1", 5, 1, 1, 1, 2, 3)
    scene.ledger.isr(6, 1, 1, [1, 2, 3], [1, 2])
    scene.in_sync(1, 2)
    scene.leader["followers"] = [follower(2, 10), follower(3, 4, caught_up_ms=42_000)]
    assert report(scene) == (
        "t-0 is under-replicated: 2 of 3 replicas are in sync (ISR 1,2)\n"
        "  replica 3 is not in the ISR  [1#2]\n"
        "    broker 3 is behind by 6: its log ends at 4, the leader's at 10; it was caught up 42 s ago"
    )


@pytest.mark.parametrize(
    ("process", "words"), [(PAUSED, "is paused (SIGSTOP)"), (SILENT, "runs but does not answer")]
)
def test_hanging_follower_is_distinguished_from_a_dead_one(
    scene: Scene, process: str, words: str
) -> None:
    scene.in_sync(1, 2).down(3, process)
    assert f"broker 3 {words}, and is still registered in ZooKeeper" in report(scene)


def test_failed_log_directory_is_reported_with_its_ledger_line(scene: Scene) -> None:
    fact = {"fact": "log directory failed", "error": "EIO", "partitions": NAMES}
    scene.ledger.add("broker", "", 3, **fact)
    scene.in_sync(1, 2)
    scene.answers[3]["replica"]["role"] = "offline"
    assert "the log directory of the replica on broker 3 has failed  [3#1]" in report(scene)


def test_broker_without_a_session_is_reported(scene: Scene) -> None:
    scene.in_sync(1, 2)
    scene.answers[3]["session_state"] = "suspended"
    assert "broker 3 has no connection to ZooKeeper (its session: suspended)" in report(scene)


def test_broker_without_a_replica_is_reported_with_its_waiting_requests(scene: Scene) -> None:
    asked = scene.ledger.request("4-2", to=3)
    scene.ledger.event("BrokersChanged", "4-2")
    scene.in_sync(1, 2)
    scene.answers[3]["replica"] = None
    scene.answers[1]["backlog"] = {"3": 2}
    expected = (
        "broker 3 has no replica yet; requests from the controller that it has not answered: 2"
    )
    assert f"{expected}  [4-2 1#{asked['n']}]" in report(scene)


def test_broker_in_controlled_shutdown_is_reported(scene: Scene) -> None:
    scene.in_sync(1, 2)
    scene.view["shutting_down"] = [3]
    assert "broker 3 is shutting down" in report(scene)


def test_partition_without_a_live_isr_member_is_reported_offline(scene: Scene) -> None:
    scene.ledger.live("4-1", 1, 2)
    scene.ledger.state("4-1", 6, -1, 2, 3)
    refused = {"verdict": "refuse", "machine": "partition", "reason": "has nobody"}
    scene.ledger.add("decision", "4-1", **refused, partitions=NAMES)
    scene.in_sync(3).down(3)
    scene.view["partition"].update(leader=-1, leader_epoch=2)
    for broker in (1, 2):
        scene.answers[broker]["replica"].update(role="follower", leader=-1, leader_epoch=2)
    assert report(scene).startswith(
        "t-0 is offline: it has no leader  [4-1 1#2]\n"
        "  replica 3 is in the ISR but cannot lead\n"
        "    broker 3 is down: it has no process  [4-1 1#1]\n"
        "  brokers 1,2 are alive but outside the ISR 3, and may lack acknowledged records; "
        "unclean.leader.election.enable is false (minikafka elect --unclean accepts the loss)  [4-1 1#3]\n"
        "t-0 is under-replicated: 1 of 3 replicas are in sync (ISR 3)\n"
    )
    assert explain(scene.evidence())[0].blocking_brokers() == {3}


def test_leader_that_was_elected_but_not_informed_is_reported(scene: Scene) -> None:
    scene.view["partition"].update(leader=2, leader_epoch=2)
    scene.answers[1]["replica"]["role"] = "follower"
    scene.answers[1]["backlog"] = {"2": 1}
    assert report(scene).startswith(
        "broker 2 was chosen to lead in epoch 2 but does not lead yet; "
        "requests from the controller that it has not answered: 1"
    )


def test_elected_leader_is_reported_as_not_leading_while_the_former_one_still_leads(
    scene: Scene,
) -> None:
    scene.view["partition"].update(leader=2, leader_epoch=2)
    assert "does not lead yet" in report(scene)


def test_missing_controller_is_reported(scene: Scene) -> None:
    scene.answers[1]["controller"] = None
    scene.answers[1]["replica"]["role"] = "follower"
    assert "there is no active controller" in report(scene)


def test_silent_controller_named_by_zookeeper_is_reported(scene: Scene) -> None:
    state = LeaderAndIsr(1, 1, (1, 2, 3), 4, 3)
    scene.down(1, PAUSED)
    assignment = ReplicaAssignment((1, 2, 3))
    scene.nodes = Nodes(1, (1, 2, 3), assignment, state, False, None)
    text = report(scene)
    assert text.startswith("t-0 is offline: its leader, broker 1, cannot serve\n")
    assert "the controller, broker 1, does not answer\n    broker 1 is paused (SIGSTOP)" in text


def test_refused_writes_are_explained_by_a_small_isr(scene: Scene) -> None:
    scene.in_sync(1).down(3)
    scene.leader.update(min_isr=2)
    assert (
        "writes with acks=all are refused (NOT_ENOUGH_REPLICAS): the ISR 1 has 1, "
        "min.insync.replicas is 2\n  replica 2 is not in the ISR"
    ) in report(scene)


def test_unacknowledged_write_is_explained_by_the_isr_member_that_does_not_fetch(
    scene: Scene,
) -> None:
    scene.leader.update(high_watermark=7, waiting_connections=1)
    scene.leader["followers"] = [follower(2, 10), follower(3, 7, fetched_ms=5_000)]
    scene.down(3, PAUSED)
    away, _, _, waiting = report(scene).split("\n", 3)
    assert away.startswith("t-0 is under-replicated: 2 of 3")
    assert waiting == (
        "3 records are not acknowledged with acks=all: the high watermark is 7, the log ends at 10; "
        "producer connections that wait: 1\n"
        "  broker 3 is paused (SIGSTOP), and is still registered in ZooKeeper\n"
        "  broker 3 is in the ISR but has not fetched all records: its log ends at 7, 3 behind"
    )
    assert explain(scene.evidence())[0].is_problem


def test_records_that_the_isr_is_still_fetching_are_not_reported_as_a_problem(scene: Scene) -> None:
    scene.leader.update(high_watermark=7)
    scene.leader["followers"] = [follower(2, 10), follower(3, 7)]
    (finding,) = explain(scene.evidence())
    assert finding.name == "not-acknowledged"
    assert not finding.is_problem


def test_invisible_offset_is_explained_by_an_isr_member_that_is_behind(scene: Scene) -> None:
    scene.leader.update(high_watermark=7)
    scene.leader["followers"] = [follower(2, 10), follower(3, 7)]
    assert report(scene, offset=8).splitlines()[-2:] == [
        "offset 8 is not visible: the high watermark is 7, the log ends at 10",
        "  broker 3 is in the ISR but has not fetched all records: its log ends at 7, 2 behind",
    ]


@pytest.mark.parametrize("change", ["expand", "shrink"])
def test_invisible_offset_is_explained_by_a_pending_isr_change(scene: Scene, change: str) -> None:
    scene.in_sync(1, 2)
    isr = [1, 2, 3] if change == "expand" else [1]
    scene.leader.update(high_watermark=7, pending_isr={"change": change, "isr": isr})
    text = report(scene, offset=8)
    assert f"leader 1 is writing the ISR {','.join(map(str, isr))} ({change})" in text


def test_invisible_offset_is_explained_by_an_isr_below_min_insync_replicas(scene: Scene) -> None:
    scene.in_sync(1).down(3)
    scene.leader.update(min_isr=2, high_watermark=7)
    text = report(scene, offset=8)
    assert (
        "  the ISR 1 is smaller than min.insync.replicas 2\n    replica 2 is not in the ISR" in text
    )


@pytest.mark.parametrize(
    ("offset", "words"),
    [
        (3, "offset 3 is visible: it is below the high watermark 10"),
        (10, "offset 10 was never written: the log ends at 10"),
        (1, "offset 1 was deleted: the log begins at 2"),
    ],
)
def test_explanation_of_an_offset_says_if_it_is_visible_deleted_or_never_written(
    scene: Scene, offset: int, words: str
) -> None:
    scene.leader["log_start_offset"] = 2
    assert report(scene, offset) == words


def test_offset_in_a_dead_cluster_is_explained_from_files(scene: Scene) -> None:
    scene.ledger.state("4-1", 6, 1, 2, 1, 2)
    scene.down(2).down(3)
    scene.answers.clear()
    scene.processes[1] = DOWN
    scene.files = {1: ReplicaFiles(7, 10), 2: ReplicaFiles(None, 8), 3: ReplicaFiles(None, None)}
    text = report(scene, offset=9)
    assert "t-0 is offline: its leader, broker 1, cannot serve  [4-1 1#1]" in text
    assert (
        "without a leader, it is unknown whether offset 9 is visible; on disk: the log on broker 1 ends at 10, "
        "high watermark 7 at the last checkpoint; the log on broker 2 ends at 8"
    ) in text


def deletion(scene: Scene, **more: object) -> None:
    scene.ledger.event("DeletionsChanged", "4-3", topics=["t"])
    scene.view["deletion"] = {"waits_for": None, "replicas": [], "reassigning": [], **more}


def test_waiting_deletion_is_explained_by_a_dead_broker(scene: Scene) -> None:
    scene.down(3)
    replicas = [[3, 0, "ReplicaDeletionIneligible"]]
    deletion(scene, waits_for="offline replicas", replicas=replicas)
    assert report(scene) == (
        "topic t is marked for deletion and not deleted yet  [4-3 1#1]\n"
        "  the deletion waits because of offline replicas\n"
        "  broker 3 is down: it has no process"
    )


def test_waiting_deletion_is_explained_by_a_reassignment(scene: Scene) -> None:
    scene.ledger.event("ReassignmentsRequested", "4-2", targets=[["t", 0, [2, 3]]])
    deletion(scene, waits_for="topic reassignment in progress", reassigning=[0])
    assert "  the reassignment of partitions 0 must finish first  [4-2 1#1]" in report(scene)


def test_waiting_deletion_is_explained_by_a_silent_broker(scene: Scene) -> None:
    scene.ledger.request("4-3", to=2, name="StopReplica", delete=True)
    deletion(scene, replicas=[[2, 0, "ReplicaDeletionStarted"]])
    scene.down(2, PAUSED)
    assert report(scene).splitlines()[1:] == [
        "  broker 2 was told to delete its replicas and has not answered  [4-3 1#1]",
        "    broker 2 is paused (SIGSTOP), and is still registered in ZooKeeper",
    ]


def test_broker_that_could_not_delete_its_replicas_is_reported(scene: Scene) -> None:
    deletion(scene, replicas=[[2, 0, "ReplicaDeletionIneligible"]])
    assert "broker 2 could not delete its replicas" in report(scene)


def test_waiting_deletion_in_a_dead_cluster_is_explained_from_the_ledger(scene: Scene) -> None:
    scene.ledger.live("4-2", 1, 2)
    scene.ledger.event("DeletionsChanged", "4-3", topics=["t"])
    scene.ledger.replica("4-3", 2, "ReplicaDeletionSuccessful")
    scene.ledger.replica("4-3", 3, "ReplicaDeletionIneligible")
    assert report(scene.all_dead()) == (
        "topic t is marked for deletion and not deleted yet  [4-3 1#2]\n"
        "  there is no active controller\n"
        "  broker 3 is down: it has no process  [4-2 1#1]"
    )


def test_undeleted_topic_and_offline_partition_of_a_dead_cluster_are_reported(scene: Scene) -> None:
    scene.ledger.state("4-1", 6, 1, 1, 1, 2, 3)
    scene.ledger.event("ControllerElected", "4-3", deletions=["t"])
    names = [finding.name for finding in explain(scene.all_dead().evidence())]
    assert names == ["not-deleted", "offline"]


def test_deletion_mark_removed_because_deletion_is_disabled_is_reported(scene: Scene) -> None:
    scene.ledger.event("DeletionsChanged", "4-3", topics=["t"])
    scene.answers[1]["settings"]["delete.topic.enable"] = False
    assert report(scene) == (
        "topic t was marked for deletion; the mark was removed, as delete.topic.enable is false"
        "  [4-3 1#1]"
    )


def test_controller_held_at_a_deletion_step_is_reported_with_the_name_of_the_step(
    scene: Scene,
) -> None:
    scene.ledger.add("step", "4-3", operation="deletion", step="topic-gone", partitions=NAMES)
    deletion(scene)
    scene.answers[1]["held_at"] = "deletion.topic-gone"
    expected = "the controller, broker 1, is held at step deletion.topic-gone  [4-3 1#1]"
    assert expected in report(scene)


def test_busy_controller_is_reported_with_its_queue_size(scene: Scene) -> None:
    deletion(scene)
    scene.view.update(queue_size=4, state="BrokerChange")
    assert "the controller, broker 1, is busy with BrokerChange; 4 events wait" in report(scene)


def moving(scene: Scene) -> None:
    scene.ledger.event("ReassignmentsRequested", "4-2", targets=[["t", 0, [2, 3]]])
    replicas = {"replicas": [2, 3, 1], "adding": [3], "removing": [1], "reassigning": True}
    scene.view["partition"].update(replicas)


def test_waiting_reassignment_is_explained_by_a_lagging_replica(scene: Scene) -> None:
    moving(scene)
    scene.in_sync(1, 2)
    scene.leader["followers"] = [follower(2, 10), follower(3, 4)]
    assert report(scene).startswith(
        "t-0 is being reassigned from 2,1 to 2,3 (adding 3, removing 1)  [4-2 1#1]\n"
        "  replica 3 is not in the ISR\n"
        "    broker 3 is behind by 6: its log ends at 4, the leader's at 10; it was caught up 100 ms ago"
    )


def test_waiting_reassignment_names_the_throttles_with_rate_key_and_command(scene: Scene) -> None:
    moving(scene)
    scene.in_sync(1, 2)
    scene.leader["followers"] = [follower(2, 10), follower(3, 4)]
    scene.leader["throttles"] = {"leader.replication.throttled.rate": 5_000}
    text = report(scene)
    assert (
        "      leader.replication.throttled.rate of broker 1 limits the copies to 5000 bytes/s; `minikafka configs set "
        "leader.replication.throttled.rate=BYTES --broker 1` raises the limit\n"
    ) in text
    scene.in_sync(1, 2, 3)
    assert "throttled" not in report(scene)


def test_waiting_reassignment_is_explained_by_a_dead_target(scene: Scene) -> None:
    moving(scene)
    scene.in_sync(1, 2).down(3)
    text = report(scene)
    assert "  replica 3 is not in the ISR\n    broker 3 is down: it has no process" in text
    assert "under-replicated" not in text


def test_unfinished_reassignment_is_explained_by_a_controller_held_at_a_step(scene: Scene) -> None:
    moving(scene)
    scene.answers[1]["held_at"] = "reassignment.B4"
    assert "the controller, broker 1, is held at step reassignment.B4" in report(scene)


def test_waiting_reassignment_in_a_dead_cluster_is_explained_from_the_ledger(scene: Scene) -> None:
    scene.ledger.live("4-1", 1, 2)
    scene.ledger.event("ReassignmentsSubmitted", "4-2", targets=[["t", 0, [1, 3]]])
    lists = {"partitions": [1, 3, 2], "adding_replicas": [3], "removing_replicas": [2]}
    scene.ledger.assignment("4-2", 7, **lists)
    scene.ledger.state("4-2", 8, 1, 2, 1, 2)
    assert report(scene.all_dead()).endswith(
        "t-0 is being reassigned from 1,2 to 1,3 (adding 3, removing 2)  [4-2 1#2]\n"
        "  replica 3 is not in the ISR\n"
        "    broker 3 is down: it has no process  [4-1 1#1]\n"
        "  there is no active controller"
    )


def test_reassignment_that_the_controller_has_not_begun_is_reported(scene: Scene) -> None:
    scene.answers[1]["controller"] = None
    state = LeaderAndIsr(1, 1, (1, 2, 3), 4, 3)
    assignment = ReplicaAssignment((1, 2, 3))
    scene.nodes = Nodes(None, (1, 2, 3), assignment, state, False, (2, 3))
    assert report(scene) == (
        "the controller has not begun to move t-0 to 2,3\n  there is no active controller"
    )


def test_leader_other_than_the_preferred_one_is_reported_with_advice(scene: Scene) -> None:
    scene.ledger.state("4-1", 6, 1, 1, 1, 2, 3)
    scene.view["partition"]["replicas"] = [2, 1, 3]
    (finding,) = explain(scene.evidence())
    assert not finding.is_problem
    assert report(scene) == (
        "t-0 is led by 1, not by its preferred replica 2  [4-1 1#1]\n"
        "  broker 2 is in sync, but no election was held since then: every 300 s the controller elects "
        "preferred leaders, but only for a broker with over 10 % of its partitions led elsewhere (see minikafka elect)"
    )


def test_preferred_replica_out_of_sync_is_reported(scene: Scene) -> None:
    scene.view["partition"]["replicas"] = [3, 1, 2]
    scene.in_sync(1, 2).down(3)
    not_preferred = explain(scene.evidence())[-1]
    assert not_preferred.name == "not-preferred"
    assert names(list(not_preferred.because)) == ["out-of-sync"]


def test_log_that_is_no_longer_compacted_is_reported_with_the_reason(scene: Scene) -> None:
    scene.leader["compaction"] = {"uncleanable": "the batch at offset 7 has a wrong CRC"}
    assert report(scene) == (
        "broker 1 does not compact its log until it restarts: the batch at offset 7 has a wrong CRC"
    )
    scene.leader["compaction"] = {"uncleanable": None}
    assert report(scene) == ""


def test_findings_are_converted_to_json(scene: Scene) -> None:
    scene.ledger.live("1-2", 1, 2)
    scene.in_sync(1, 2).down(3)
    (finding,) = explain(scene.evidence())
    converted = finding.as_json()
    assert (converted["name"], converted["problem"]) == ("under-replicated", True)
    assert converted["because"][0]["because"][0]["events"] == [{"cause": "1-2", "line": "1#1"}]


def cause(name: str, broker: int | None, text: str, remedy: str = "mend it") -> Cause:
    return Cause(name, text, remedy, broker)


def test_root_cause_of_the_whole_cluster_comes_first_although_writes_succeed(scene: Scene) -> None:
    scene.causes = [cause("zookeeper-down", None, "ZooKeeper is down")]
    del scene.answers[1]["controller"]
    scene.answers[1]["controller"] = None
    for answer in scene.answers.values():
        answer["session_state"] = "lease_expired"
    assert report(scene) == "ZooKeeper is down; mend it"


def test_leader_and_fetching_followers_without_a_session_are_not_reported(scene: Scene) -> None:
    for answer in scene.answers.values():
        answer["session_state"] = "suspended"
    assert report(scene) == ""
    scene.leader["followers"] = [follower(2, 10), follower(3, 10, fetched_ms=9_000)]
    assert report(scene).splitlines() == [
        "t-0 is under-replicated: 2 of 3 replicas are in sync (ISR 1,2,3)",
        "  replica 3 is still in the ISR but does not follow",
        "    broker 3 has no connection to ZooKeeper (its session: suspended)",
    ]


def test_full_disk_is_named_before_the_lost_session(scene: Scene) -> None:
    full = "the log directory /d of broker 3 is offline: No space left on device"
    scene.causes = [cause("directory-failed", 3, full, "free space there")]
    scene.in_sync(1, 2)
    scene.answers[3]["session_state"] = "lease_expired"
    scene.answers[3]["replica"] = {"role": "offline", "leader_epoch": -1, "isr": [], "replicas": []}
    assert report(scene).endswith(f"    {full}; free space there")


def test_broker_that_is_away_is_named_with_the_command_that_mends_it(scene: Scene) -> None:
    scene.causes = [cause("broker-paused", 3, "broker 3 is paused (SIGSTOP)", "resume it")]
    scene.in_sync(1, 2).down(3, PAUSED)
    assert report(scene).endswith(
        "    broker 3 is paused (SIGSTOP), and is still registered in ZooKeeper; resume it"
    )


def test_registration_of_a_paused_broker_is_not_claimed_if_it_is_not_known(scene: Scene) -> None:
    scene.answers.clear()
    scene.down(1, PAUSED).down(2, PAUSED).down(3, PAUSED)
    scene.ledger.state("4-1", 6, 1, 1, 1, 2, 3)
    assert "registered" not in report(scene)
    assert "broker 1 is paused (SIGSTOP)" in report(scene)
