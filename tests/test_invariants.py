"""The invariant checker for ledgers: each violation is found with its lines, and a correct ledger has none."""

from __future__ import annotations

from typing import Any

import pytest
from support.ledger.invariants import violations
from support.ledger.ledger_lines import NAMES, Lines

from minikafka.broker.ledger.reader import name_of


@pytest.fixture
def ledger() -> Lines:
    """A ledger in which broker 1 became controller with epoch 1 at version 1 of the epoch node."""
    ledger = Lines()
    ledger.add("election", "1-0", outcome="won", epoch=1, zk_version=1, controller=1, reason="")
    return ledger


def found(ledger: Lines) -> str:
    return "\n".join(violations(ledger.lines))


def epoch_write(ledger: Lines, zxid: int, epoch: int) -> dict[str, Any]:
    operation = {"op": "set", "path": "/controller_epoch", "expected": 0, "actual": 1}
    fields = {"check": {"path": "/controller_epoch", "version": epoch - 1}, "outcome": "ok"}
    operations = [operation | {"data": str(epoch)}]
    return ledger.add("write", f"{epoch}-0", zxid=zxid, **fields, operations=operations)


def became_leader(ledger: Lines, broker: int, epoch: int) -> dict[str, Any]:
    result = {"became": "leader", "error": 0, "leader_epoch": epoch, "partitions": NAMES}
    head = {"phase": "completed", "request": "LeaderAndIsr", "from": 1, "controller_epoch": 1}
    return ledger.add("effect", "1-2", broker, **head, error=0, results=[result])


def test_correct_history_has_no_violation(ledger: Lines) -> None:
    epoch_write(ledger, 1, 1)
    ledger.state("1-1", 2, 1, 0, 1, 2)
    became_leader(ledger, 1, 0)
    ledger.isr(3, 1, 0, [1, 2], [1])
    ledger.state("1-2", 4, -1, 1, 1)
    ledger.state("1-3", 5, 2, 2, 1, 2)
    became_leader(ledger, 2, 2)
    assert found(ledger) == ""


def test_falling_leader_epoch_is_a_violation(ledger: Lines) -> None:
    before = ledger.state("1-1", 5, 1, 3, 1)
    after = ledger.state("1-2", 6, 1, 2, 1)
    assert (
        found(ledger)
        == f"leader epoch fell from 3 to 2 of t-0: {name_of(before)}, {name_of(after)}"
    )


def test_ledger_lines_are_checked_in_the_order_of_their_zxids(ledger: Lines) -> None:
    ledger.state("1-2", 6, 1, 3, 1)
    ledger.state("1-1", 5, 1, 2, 1)
    assert found(ledger) == ""


def test_leader_epoch_may_fall_when_the_topic_was_created_again(ledger: Lines) -> None:
    ledger.state("1-1", 5, 1, 3, 1)
    became_leader(ledger, 1, 0)
    ledger.state("1-2", 6, 2, 0, 2)["operations"][0]["op"] = "create"
    became_leader(ledger, 2, 0)
    assert found(ledger) == ""


def test_two_leaders_in_one_epoch_in_zookeeper_are_a_violation(ledger: Lines) -> None:
    ledger.state("1-1", 5, 1, 3, 1, 2)
    ledger.isr(6, 2, 3, [1, 2], [2])
    assert "leaders 1 and 2 in epoch 3" in found(ledger)


def test_two_brokers_leading_in_one_epoch_are_a_violation(ledger: Lines) -> None:
    became_leader(ledger, 1, 3)
    became_leader(ledger, 2, 3)
    assert "two leaders of t-0 in epoch 3: 1#2, 2#3" in found(ledger)


def test_leader_outside_its_isr_is_a_violation(ledger: Lines) -> None:
    ledger.state("1-1", 5, 1, 3, 2)
    assert "leader 1 is not in the ISR [2]" in found(ledger)


def test_empty_isr_is_a_violation_in_every_kind_of_ledger_line(ledger: Lines) -> None:
    ledger.state("1-1", 5, -1, 3)
    ledger.isr(6, 1, 3, [1], [])
    ledger.request("1-1", 2, leader=-1, isr=[])
    ledger.add("decision", "1-1", verdict="choose", machine="partition", leader=-1, isr=[])
    assert found(ledger).count("an empty ISR") == 4


def test_controller_write_without_an_epoch_check_is_a_violation(ledger: Lines) -> None:
    ledger.state("1-1", 5, 1, 3, 1)["check"] = None
    assert "a write without the check of the controller epoch: 1#2" in found(ledger)


def test_controller_write_with_the_check_of_another_epoch_is_a_violation(ledger: Lines) -> None:
    ledger.state("1-1", 5, 1, 3, 1)["check"] = {"path": "/controller_epoch", "version": 7}
    assert "checked version 7, not 1: 1#2" in found(ledger)


def test_epoch_won_by_two_brokers_is_a_violation(ledger: Lines) -> None:
    ledger.add("election", "1-0", 2, outcome="won", epoch=1, zk_version=1, controller=2, reason="")
    assert "epoch 1 won twice: 1#1, 2#2" in found(ledger)


def test_controller_epoch_that_does_not_rise_is_a_violation(ledger: Lines) -> None:
    epoch_write(ledger, 1, 2)
    epoch_write(ledger, 2, 2)
    assert "the controller epoch went from 2 to 2" in found(ledger)


def test_broker_obeying_a_former_controller_is_a_violation(ledger: Lines) -> None:
    became_leader(ledger, 2, 1)["controller_epoch"] = 5
    became_leader(ledger, 2, 2)
    assert "obeyed an older controller: 2#2, 2#3" in found(ledger)


def test_request_in_progress_at_a_controller_change_is_no_violation(
    ledger: Lines,
) -> None:
    head = {"phase": "received", "request": "LeaderAndIsr", "from": 1, "controller_epoch": 1}
    ledger.add("effect", "1-2", 2, **head, partitions=NAMES)
    became_leader(ledger, 2, 6).update(controller_epoch=5, cause="5-1")
    became_leader(ledger, 2, 5)
    assert found(ledger) == ""


def test_restarted_broker_may_receive_an_older_request_again(ledger: Lines) -> None:
    became_leader(ledger, 2, 1)["controller_epoch"] = 5
    ledger.add("broker", "", 2, fact="started")
    became_leader(ledger, 2, 2)
    assert found(ledger) == ""


@pytest.mark.row("G3")
def test_new_replica_that_is_told_to_lead_is_a_violation(ledger: Lines) -> None:
    ledger.replica("1-1", 3, "NewReplica")
    ledger.request("1-1", 3, leader=1, leader_epoch=1)
    assert found(ledger) == ""
    wrong = ledger.request("1-1", 3, leader=3, leader_epoch=1, isr=[3])
    assert f"is told to lead: {name_of(wrong)}" in found(ledger)


@pytest.mark.row("G3")
def test_first_leader_of_a_new_partition_is_no_violation(ledger: Lines) -> None:
    ledger.replica("1-1", 3, "NewReplica")
    ledger.request("1-1", 3, leader=3, leader_epoch=0, isr=[3])
    ledger.replica("1-1", 3, "OnlineReplica")
    ledger.request("1-2", 3, leader=3, leader_epoch=1, isr=[3])
    assert found(ledger) == ""
