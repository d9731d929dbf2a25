"""The findings of `why` about open transactions, which hold back the last stable offset."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.ledger.ledger_lines import Scene

from minikafka.tools.explain.finding import Finding, as_json
from minikafka.tools.explain.open_transactions import seems_hanging, still_open
from minikafka.tools.explain.why import explain


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    scene.leader["last_stable_offset"] = 4
    scene.leader["open_transactions"] = [in_log(7, 4)]
    return scene


def in_log(producer_id: int, start: int, last_record_ms: int = 20_000) -> dict[str, int]:
    """Return what the leader reports about an open transaction."""
    fields = {"producer_id": producer_id, "producer_epoch": 2}
    return {**fields, "start_offset": start, "last_record_ms": last_record_ms}


def known(scene: Scene, broker: int, producer_id: int = 7, **more: Any) -> None:
    """Let a broker report that it coordinates the transaction of this producer."""
    fields = {"transactional_id": f"pay-{producer_id}", "producer_id": producer_id}
    fields |= {"state": "Ongoing", "age_ms": 35_000, "timeout_ms": 60_000, **more}
    scene.answers[broker]["transactions"]["open"].append(fields)


def only(scene: Scene) -> tuple[Finding, tuple[Finding, ...]]:
    """Return the only finding, and its causes."""
    (found,) = explain(scene.evidence())
    return found, found.because


def test_open_transaction_is_named_with_producer_age_and_coordinator(scene: Scene) -> None:
    known(scene, 3)
    found, (cause,) = only(scene)
    assert found.text == (
        "read_committed consumers read up to the last stable offset 4, not up to the high watermark 10, "
        "because of open transactions: 1"
    )
    assert cause.text == (
        "transactional id pay-7 (producer 7, epoch 2; coordinator: broker 3) has had a transaction open since "
        "offset 4, for 35 s: it is aborted in 25 s (its transaction.timeout.ms is 60000), unless its producer ends it "
        "earlier; `minikafka transactions fence pay-7` aborts it now and fences its producer"
    )
    assert found.is_problem
    assert as_json([found])["blocking_brokers"] == []


def test_json_of_a_partition_has_each_open_transaction(scene: Scene) -> None:
    known(scene, 3)
    state = scene.evidence().as_json()
    assert (state["high_watermark"], state["last_stable_offset"]) == (10, 4)
    assert state["open_transactions"] == [
        {
            "producer_id": 7,
            "producer_epoch": 2,
            "start_offset": 4,
            "last_record_ms": 20_000,
            "coordinator": 3,
            "transactional_id": "pay-7",
            "state": "Ongoing",
            "age_ms": 35_000,
            "timeout_ms": 60_000,
            "client": None,
        }
    ]
    scene.all_dead()
    assert scene.evidence().as_json()["open_transactions"] == []


def test_open_transaction_is_named_with_its_client_and_a_command_for_the_same_cluster(
    scene: Scene,
) -> None:
    known(scene, 3, transactional_id="pay day", client="till at 10.0.0.5:3333")
    evidence = replace(scene.evidence(), where=" --data /d")
    ((cause,),) = (found.because for found in explain(evidence))
    assert (
        "(producer 7, epoch 2; client till at 10.0.0.5:3333; coordinator: broker 3)" in cause.text
    )
    assert "`minikafka transactions fence 'pay day' --data /d` aborts it now" in cause.text


def test_young_transaction_is_shown_and_is_no_problem(scene: Scene) -> None:
    known(scene, 3, age_ms=900)
    found, (cause,) = only(scene)
    assert "for 900 ms: it is aborted in 59 s" in cause.text
    assert not found.is_problem


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"state": "PrepareCommit"},
            "its end is decided (PrepareCommit), and its markers are being",
        ),
        ({"age_ms": 61_000}, "its timeout of 60 s has passed, and it is being aborted"),
    ],
)
def test_transaction_that_is_ending_is_described_so(
    scene: Scene, fields: dict[str, Any], words: str
) -> None:
    known(scene, 3, **fields)
    _, (cause,) = only(scene)
    assert words in cause.text


def test_transaction_without_coordinator_is_hanging_and_has_a_remedy(scene: Scene) -> None:
    _, (cause,) = only(scene)
    assert cause.text == (
        "producer 7 (epoch 2) has a transaction open since offset 4; its last record is 20 s old; it is hanging: no "
        "coordinator knows it, so no marker will end it; `minikafka transactions abort t-0 --start-offset 4` does"
    )
    assert cause.is_problem


def test_transaction_may_have_ended_between_the_reports(scene: Scene) -> None:
    scene.leader["open_transactions"] = [in_log(7, 4, last_record_ms=300)]
    assert explain(scene.evidence()) == []


def test_transaction_is_not_called_hanging_while_a_coordinator_is_silent(scene: Scene) -> None:
    scene.answers[3]["transactions"]["loading"] = True
    _, (cause,) = only(scene)
    assert cause.name == "coordinator-unknown"
    assert cause.text.endswith("its coordinator is not known: no answer from brokers 3")
    assert cause.brokers == (3,)


def test_former_coordinator_of_a_transaction_is_not_believed(scene: Scene) -> None:
    known(scene, 2, coordinator_epoch=5, state="PrepareAbort")
    known(scene, 3, coordinator_epoch=4)
    [found] = scene.evidence().open_transactions
    assert (found.coordinator, found.state) == (2, "PrepareAbort")


def test_transactions_are_listed_from_the_earliest_on(scene: Scene) -> None:
    scene.leader["open_transactions"] = [in_log(8, 6), in_log(7, 4)]
    known(scene, 2, 7)
    known(scene, 3, 8)
    assert [one.producer_id for one in scene.evidence().open_transactions] == [7, 8]


def test_offset_above_the_last_stable_offset_is_explained_by_the_transactions(scene: Scene) -> None:
    known(scene, 3)
    *_, stable = explain(scene.evidence(), 3)
    assert stable.name == "offset-visible"
    *_, found = explain(scene.evidence(), 4)
    assert found.text == (
        "offset 4 is visible only to consumers that read uncommitted records: the last stable offset is 4"
    )
    assert found.because[0].because[0].name == "open-transaction"


def test_transaction_that_ends_between_two_answers_does_not_seem_to_hang(scene: Scene) -> None:
    scene.leader["open_transactions"] = [in_log(7, 4), in_log(8, 6)]
    known(scene, 3, 8)
    first = dict(scene.answers)
    assert seems_hanging(first)
    second = {**first, 1: {**first[1], "replica": {**scene.leader, "open_transactions": []}}}
    assert (still_open(first, second)[1]["replica"] or {})["open_transactions"] == []
    assert still_open(first, first) == first
    assert still_open(first, {}) == first
    begun_later = {**scene.leader, "open_transactions": [in_log(7, 9)]}
    second = {**first, 1: {**first[1], "replica": begun_later}}
    assert (still_open(first, second)[1]["replica"] or {})["open_transactions"] == []
    known(scene, 2, 7)
    assert not seems_hanging(scene.answers)
