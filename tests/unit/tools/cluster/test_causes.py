"""The root causes of a cluster's problems."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from minikafka.tools.cluster.observation.causes import Cause, causes_of, state_of
from minikafka.tools.cluster.observation.sights import (
    DOWN,
    PAUSED,
    RUNS,
    BrokerSight,
    ProcessSight,
    Sights,
    ZooKeeperSight,
)

FULL = "No space left on device"


def answer(**more: Any) -> dict[str, Any]:
    """Return a broker's answer to the call `state`. Broker 1 is the controller."""
    fields = {"session_state": "connected", "offline_directories": {}, "is_controller": False}
    return {**fields, "controller_id": 1, "controller_epoch": 3, "live_brokers": [1, 2, 3], **more}


class Scene:
    """The sights of three brokers and ZooKeeper, which all work."""

    def __init__(self) -> None:
        self.zookeeper = ZooKeeperSight("h:1", ProcessSight(RUNS, 9, log="z.log"))
        self.brokers = {
            id_: BrokerSight(
                id_,
                9090 + id_,
                8090 + id_,
                ProcessSight(RUNS, 10 + id_, log="b.log"),
                answer(is_controller=id_ == 1),
                session_timeout_ms=6_000,
            )
            for id_ in (1, 2, 3)
        }
        self.is_attached = False
        self.retired: tuple[int, ...] = ()
        self.coordination = "controller"
        self.elected: int | None = None

    def broker(self, id_: int, **changes: Any) -> None:
        self.brokers[id_] = replace(self.brokers[id_], **changes)

    def answers(self, **changes: Any) -> None:
        for id_, seen in self.brokers.items():
            self.broker(id_, answer={**(seen.answer or {}), **changes})

    def process(self, id_: int, state: str, **more: Any) -> None:
        self.broker(id_, process=ProcessSight(state, None if state == DOWN else 5, **more))
        self.broker(id_, answer=None)

    def zookeeper_is(self, state: str, failure: str = "", **more: Any) -> None:
        self.zookeeper = ZooKeeperSight("h:1", ProcessSight(state, 9, **more), failure)

    @property
    def sights(self) -> Sights:
        return Sights(
            self.zookeeper,
            self.brokers,
            self.is_attached,
            self.retired,
            self.coordination,
            self.elected,
        )

    def causes(self, where: str = "") -> list[Cause]:
        return causes_of(self.sights, where)

    def sentences(self) -> list[str]:
        return [cause.sentence for cause in self.causes()]

    def states(self) -> list[str]:
        return [state_of(broker, self.sights) for broker in self.brokers.values()]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_healthy_cluster_has_no_cause(scene: Scene) -> None:
    assert scene.causes() == []
    assert scene.states() == ["up", "up", "up"]


def test_end_of_the_proxy_of_faults_explains_the_silence_of_all_others(scene: Scene) -> None:
    scene.zookeeper_is(RUNS, "connection refused")
    scene.broker(1, answer=None, failure="connection refused")

    [cause] = causes_of(replace(scene.sights, proxy_is_gone=True))

    assert cause.name == "proxy-down"
    assert cause.remedy == "`minikafka up` starts it again"


def test_missing_controller_is_no_cause_in_the_mode_leaders(scene: Scene) -> None:
    scene.answers(is_controller=False)
    assert [cause.name for cause in scene.causes()] == ["no-controller"]
    scene.coordination = "leaders"
    assert scene.causes() == []


def test_broker_that_no_broker_lists_is_named_in_the_mode_leaders(scene: Scene) -> None:
    scene.coordination = "leaders"
    scene.answers(is_controller=False, live_brokers=[1, 3])
    [cause] = scene.causes()
    assert cause.text == "broker 2 has a ZooKeeper session, but no broker lists it as alive"
    assert scene.states() == ["up", "not registered", "up"]


@pytest.mark.parametrize("state", ["suspended", "lease_expired"])
def test_zookeeper_that_is_down_is_the_only_cause_when_brokers_have_lost_their_sessions(
    scene: Scene, state: str
) -> None:
    scene.zookeeper_is(DOWN)
    scene.answers(session_state=state, is_controller=False)
    assert scene.sentences() == [
        "ZooKeeper is down: it has no process, so nothing can be elected, created or changed; "
        "`minikafka up` starts it again"
    ]
    assert scene.states() == ["no session"] * 3


def test_cause_of_zookeepers_end_is_named_with_what_must_be_done_first(scene: Scene) -> None:
    scene.zookeeper_is(DOWN, full=("/d/zookeeper",))
    assert scene.sentences()[0].endswith(
        f"; the file system of /d/zookeeper is full ({FULL}); "
        "free space there, then `minikafka up` starts it again"
    )
    scene.zookeeper_is(DOWN, last_line="Removing file: snapshot.0", log="z.log")
    assert "its log ends" not in scene.sentences()[0]
    scene.zookeeper_is(DOWN, taken=(2181,), last_line="Address already in use", log="z.log")
    assert scene.sentences()[0].endswith(
        "; another process uses its port 2181; its log ends: Address already in use (z.log); "
        "end the process that listens there, then `minikafka up` starts it again"
    )


def test_error_with_which_the_embedded_zookeeper_has_ended_is_named(scene: Scene) -> None:
    scene.zookeeper_is(DOWN, last_line="minikafka: fsync of log.1: Input/output error", log="z.log")
    assert scene.causes()[0].text == (
        "ZooKeeper is down: it ended with the error: fsync of log.1: Input/output error, "
        "so nothing can be elected, created or changed"
    )


def test_zookeeper_that_is_paused_or_does_not_answer_is_named(scene: Scene) -> None:
    scene.zookeeper_is(PAUSED)
    [paused] = scene.sentences()
    assert paused.startswith("ZooKeeper is paused (SIGSTOP, pid 9), so nothing can be elected")
    assert paused.endswith("; `minikafka resume zookeeper` lets it continue")
    scene.zookeeper_is(RUNS, "no answer within 0.8 s")
    [silent] = scene.sentences()
    assert "runs (pid 9) but does not serve: no answer within 0.8 s" in silent
    scene.zookeeper = ZooKeeperSight("h:1", None, "connection refused")
    [foreign] = scene.causes()
    assert foreign.text.startswith("ZooKeeper at h:1 does not serve: connection refused")
    assert "does not belong to this cluster" in foreign.remedy


def test_full_disk_is_named_with_directory_error_and_command(scene: Scene) -> None:
    scene.broker(2, answer=answer(offline_directories={"/d/2": FULL}))
    [cause] = scene.causes(" --data x")
    assert cause.broker == 2
    assert cause.sentence == (
        f"the log directory /d/2 of broker 2 is offline: {FULL}; "
        "free space there, then `minikafka restart 2 --data x`"
    )
    assert scene.states() == ["up", "disk failed", "up"]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("Disk quota exceeded", "free space there"),
        ("Read-only file system", "make it writable"),
        ("File too large", "raise the limit of file sizes (ulimit -f)"),
        ("Input/output error", "repair it"),
    ],
)
def test_remedy_of_a_failed_directory_depends_on_the_error(
    scene: Scene, error: str, words: str
) -> None:
    scene.broker(2, answer=answer(offline_directories={"/d/2": error}))
    assert scene.sentences()[0].endswith(f"{error}; {words}, then `minikafka restart 2`")


def test_full_file_system_is_named_before_the_broker_fails_on_it(scene: Scene) -> None:
    scene.broker(3, process=ProcessSight(RUNS, 5, full=("/d/3",)))
    assert scene.sentences() == [
        f"the file system of /d/3 is full ({FULL}): broker 3 loses it at its next write; free space there"
    ]


def test_broker_that_is_down_is_named_with_how_it_ended(scene: Scene) -> None:
    scene.process(2, DOWN)
    assert scene.sentences() == [
        "broker 2 is down: it has no process; `minikafka start 2` starts it again"
    ]
    scene.process(2, DOWN, last_line="broker 2 has stopped")
    assert scene.sentences()[0].startswith("broker 2 is down: it was stopped; ")
    scene.process(2, DOWN, last_line=f"minikafka: /d/2/.lock: {FULL}")
    assert scene.sentences() == [
        f"broker 2 is down: it ended with the error: /d/2/.lock: {FULL}; "
        "free space there, then `minikafka start 2` starts it again"
    ]
    scene.process(2, DOWN, taken=(9092,))
    assert "another process uses its port 9092; end the process" in scene.sentences()[0]


def test_paused_brokers_are_named_with_the_commands_that_resume_them(scene: Scene) -> None:
    for broker in (1, 2, 3):
        scene.process(broker, PAUSED)
    assert scene.sentences() == [
        f"broker {broker} is paused (SIGSTOP, pid 5); `minikafka resume {broker}` lets it continue"
        for broker in (1, 2, 3)
    ]
    assert scene.states() == ["paused"] * 3


def test_silent_broker_is_told_from_a_blocked_control_port(scene: Scene) -> None:
    scene.broker(2, answer=None, failure="no answer within 0.8 s", answers_clients=True)
    [blocked] = scene.sentences()
    assert blocked.startswith(
        "broker 2 answers clients on port 9092, but not the controller on port 8092: no answer"
    )
    assert "firewall" in blocked
    scene.broker(2, answers_clients=False)
    [silent] = scene.sentences()
    assert silent.startswith("broker 2 runs (pid 12) but does not answer: no answer within 0.8 s; ")
    assert "`minikafka restart 2` restarts it" in silent
    assert scene.states()[1] == "silent"


def test_broker_without_a_session_is_a_cause_only_if_zookeeper_serves(scene: Scene) -> None:
    scene.broker(3, answer=answer(session_state="lease_expired"))
    [cause] = scene.causes()
    assert (cause.name, cause.broker) == ("no-session", 3)
    assert "broker 3 has no connection to ZooKeeper at h:1 (its session: lease expired)" in (
        cause.sentence
    )
    assert cause.remedy == "`minikafka logs 3` shows why; if it lasts, `minikafka restart 3`"
    scene.zookeeper_is(PAUSED)
    assert [cause.name for cause in scene.causes()] == ["zookeeper-paused"]


def test_broker_that_the_controller_does_not_list_is_not_shown_as_up(scene: Scene) -> None:
    scene.broker(1, answer=answer(is_controller=True, live_brokers=[1, 2]))
    assert [cause.name for cause in scene.causes()] == ["not-registered"]
    assert scene.states() == ["up", "up", "not registered"]


def test_controller_that_is_away_is_named_until_another_broker_takes_over(scene: Scene) -> None:
    scene.process(1, DOWN)
    assert scene.sentences()[1] == (
        "no broker that answers is the controller: it is broker 1 until its ZooKeeper session "
        "expires (6 s after it failed)"
    )
    scene.broker(2, answer=answer(is_controller=True, controller_epoch=4, live_brokers=[2, 3]))
    assert [cause.name for cause in scene.causes()] == ["broker-down"]


def test_removed_broker_is_a_cause_only_if_it_still_has_replicas(scene: Scene) -> None:
    scene.retired = (4, 5)
    assert scene.causes() == []
    scene.answers(replicas=[{"replicas": [1, 4]}])
    assert scene.sentences() == [
        "broker 4 was removed from the cluster, but still has replicas; "
        "`minikafka up --brokers 5` adds it again"
    ]


def test_cluster_without_any_process_has_one_cause(scene: Scene) -> None:
    scene.zookeeper_is(DOWN)
    for broker in (1, 2, 3):
        scene.process(broker, DOWN)
    assert scene.sentences() == [
        "the cluster is down: it has no process; `minikafka up` starts it again"
    ]


def test_remedy_of_an_attached_cluster_is_a_method_of_its_program(scene: Scene) -> None:
    scene.is_attached = True
    scene.zookeeper_is(DOWN)
    assert "start_zookeeper()" in scene.causes()[0].remedy
    assert "minikafka up" not in scene.causes()[0].remedy


@pytest.mark.parametrize("state", [RUNS, DOWN])
def test_lost_zookeeper_is_the_only_cause_of_brokers_without_a_session(state: str) -> None:
    scene = Scene()
    scene.zookeeper = ZooKeeperSight("h:1", ProcessSight(state, 9), lost="the cluster is gone")
    scene.answers(session_state="suspended")
    scene.process(2, DOWN, last_line="minikafka: ZooKeeper has no node")
    [cause] = scene.causes()
    assert (cause.name, cause.text) == ("zookeeper-lost", "the cluster is gone")
    assert cause.remedy == "`minikafka down`, then `minikafka zk recover`, rebuilds it"
    for id_ in scene.brokers:
        scene.process(id_, DOWN)
    scene.zookeeper = replace(scene.zookeeper, process=ProcessSight(DOWN))
    assert [cause.name for cause in scene.causes()] == ["zookeeper-lost"]


def test_broker_that_claims_to_be_the_controller_in_an_older_epoch_is_a_zombie(
    scene: Scene,
) -> None:
    scene.broker(2, answer=answer(is_controller=True, controller_id=2, controller_epoch=4))
    scene.broker(3, answer=answer(controller_id=2, controller_epoch=4))
    scene.elected = 2
    assert scene.sentences() == [
        "broker 1 is a zombie controller: it claims to be the controller in epoch 3, but broker 2 is the controller "
        "in epoch 4, and ZooKeeper names broker 2; its requests and writes are refused; if it lasts, "
        "`minikafka restart 1`"
    ]


def test_only_claim_to_be_the_controller_is_refuted_by_a_newer_epoch_or_by_zookeeper(
    scene: Scene,
) -> None:
    scene.broker(3, answer=answer(controller_id=2, controller_epoch=4))
    assert [cause.name for cause in scene.causes()] == ["zombie-controller", "no-controller"]
    assert "but other brokers know epoch 4; its requests" in scene.sentences()[0]
    scene.broker(3, answer=answer())
    scene.elected = 2
    assert [cause.name for cause in scene.causes()] == ["zombie-controller", "no-controller"]


def test_zombie_controller_does_not_decide_which_brokers_are_registered(scene: Scene) -> None:
    scene.broker(1, answer=answer(is_controller=True, live_brokers=[1]))
    newer = {"controller_id": 2, "controller_epoch": 4}
    scene.broker(2, answer=answer(is_controller=True, **newer))
    scene.broker(3, answer=answer(**newer))
    assert scene.states() == ["up", "up", "up"]


def test_broker_that_leads_in_an_older_epoch_than_another_one_is_a_cause(scene: Scene) -> None:
    def leads(epoch: int) -> list[dict[str, Any]]:
        row = {"topic": "t", "partition": 0, "role": "leader", "leader_epoch": epoch}
        return [{**row, "replicas": [1, 2]}]

    scene.broker(1, answer=answer(is_controller=True, replicas=leads(5)))
    scene.broker(2, answer=answer(replicas=leads(6)))
    [cause] = scene.causes()
    assert (cause.name, cause.broker) == ("zombie-leader", 1)
    assert "broker 1 claims to lead t-0, but another broker leads in a newer epoch" in cause.text


def test_removed_log_directory_of_a_running_broker_is_a_cause_whether_it_answers_or_not(
    scene: Scene,
) -> None:
    gone = ProcessSight(RUNS, 11, log="b.log", missing=("/d",))
    scene.broker(1, process=gone)
    sentence = (
        "the log directory /d of broker 1 does not exist any more, although the broker runs; restore it if you moved "
        "it; else `minikafka restart 1` makes an empty one and copies the replicas that other brokers have"
    )
    assert scene.sentences() == [sentence]
    scene.broker(1, answer=None)
    scene.broker(2, answer=answer(is_controller=True))
    assert scene.sentences() == [sentence]


def test_corrupt_batch_that_a_coordinator_has_skipped_is_a_cause(scene: Scene) -> None:
    batch = {"topic": "__transaction_state", "partition": 4, "offset": 9, "file": "/d/f.log"}
    scene.broker(3, answer=answer(skipped_batches=[{**batch, "error": "wrong CRC"}]))
    [cause] = scene.causes()
    assert (cause.name, cause.broker) == ("corrupt-records", 3)
    assert cause.text == (
        "broker 3 coordinates without the records of __transaction_state-4 at offset 9 in /d/f.log, which it cannot "
        "read (wrong CRC): transactions may be older or missing"
    )


def test_removed_directory_of_a_running_zookeeper_is_a_cause(scene: Scene) -> None:
    scene.zookeeper_is(RUNS, missing=("/z",))
    [cause] = scene.causes()
    assert (cause.name, cause.broker) == ("directory-removed", None)
    assert "the data directory /z of ZooKeeper does not exist any more" in cause.text
