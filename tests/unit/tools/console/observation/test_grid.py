"""The rows of partitions that are combined from the answers of single brokers."""

from __future__ import annotations

from typing import Any

from minikafka.tools.console.observation.grid import (
    EPOCH,
    HIGH_WATERMARK,
    ISR,
    LAST_STABLE,
    LEADER,
    LOG_END,
    OFFLINE,
    PartitionGrid,
)


def replica(broker: int, leader: int, epoch: int = 1, end: int = 10, **more: Any) -> dict[str, Any]:
    row = {
        "topic": "t",
        "partition": 0,
        "role": "leader" if broker == leader else "follower",
        "opening": None,
        "leader_epoch": epoch,
        "replicas": [1, 2, 3],
        "isr": [1, 2, 3],
        "adding": [],
        "removing": [],
        "high_watermark": end,
        "log_end_offset": end,
        "log_start_offset": 0,
        "last_stable_offset": end,
        "size": 100,
    }
    return {**row, **more}


def grid_of(*brokers: int, leader: int = 1) -> PartitionGrid:
    grid = PartitionGrid()
    for broker in brokers:
        grid.update(broker, [replica(broker, leader)])
    return grid


def test_row_has_the_values_of_the_leader() -> None:
    grid = grid_of(2, 3)
    assert grid.rows["t-0"][LEADER] is None
    assert grid.update(1, [replica(1, 1, end=12, isr=[1, 2], last_stable_offset=7)]) == {"t-0"}
    row = grid.rows["t-0"]
    assert (row[LEADER], row[ISR], row[HIGH_WATERMARK], row[LAST_STABLE]) == (1, [1, 2], 12, 7)
    assert grid.sizes == {"t-0": 100}


def test_update_returns_only_partitions_whose_rows_have_changed() -> None:
    grid = grid_of(1, 2, 3)
    assert grid.update(1, [replica(1, 1)]) == set()
    assert grid.update(2, [replica(2, 1, end=9)]) == set(), "the leader's offsets are shown"
    assert grid.update(1, [replica(1, 1, end=11)]) == {"t-0"}


def test_leader_in_the_newest_epoch_counts_when_two_claim_to_lead() -> None:
    grid = grid_of(1, 2, 3)
    grid.update(2, [replica(2, 2, epoch=2, isr=[2, 3])])
    row = grid.rows["t-0"]
    assert (row[LEADER], row[EPOCH], row[ISR]) == (2, 2, [2, 3])
    grid.update(1, [replica(1, 1, end=99)])
    assert grid.rows["t-0"][LEADER] == 2


def test_opening_leader_leads_nothing_yet() -> None:
    grid = grid_of(1, 2)
    grid.update(1, [replica(1, 1, epoch=2, opening=[3])])
    assert grid.rows["t-0"][LEADER] is None


def test_partition_keeps_its_offsets_without_a_leader_when_its_broker_does_not_answer() -> None:
    grid = grid_of(1, 2, 3)
    assert grid.forget(1) == {"t-0"}
    row = grid.rows["t-0"]
    assert (row[LEADER], row[OFFLINE], row[HIGH_WATERMARK], row[LOG_END]) == (None, [1], 10, 10)
    assert grid.sizes == {}
    grid.forget(2)
    grid.forget(3)
    assert grid.rows["t-0"][OFFLINE] == [1, 2, 3]
    assert grid.forget(1) == set(), "a second time changes nothing"


def test_deleted_partition_goes_when_no_broker_with_a_replica_is_away() -> None:
    grid = grid_of(1, 2, 3)
    grid.update(1, [])
    grid.update(2, [])
    assert "t-0" in grid.rows
    assert grid.update(3, []) == {"t-0"}
    assert grid.rows == {}


def test_counts_follow_leaders_and_preferred_replicas() -> None:
    grid = grid_of(1, 2, 3)
    assert grid.counts() == {1: [1, 1, 1], 2: [0, 0, 1], 3: [0, 0, 1]}
    grid.forget(1)
    grid.update(2, [replica(2, 2, epoch=2)])
    assert grid.counts() == {1: [0, 1, 1], 2: [1, 0, 1], 3: [0, 0, 1]}


def test_change_applies_only_the_replicas_that_it_names() -> None:
    grid = PartitionGrid()
    grid.update(1, [replica(1, 1), replica(1, 1, partition=1, replicas=[1])])
    assert grid.change(1, [replica(1, 1, end=11)], []) == {"t-0"}
    assert grid.change(1, [replica(1, 1, end=11)], []) == set()
    assert grid.rows["t-1"][LOG_END] == 10
    assert grid.change(1, [], ["t-1", "t-7"]) == {"t-1"}
    assert set(grid.rows) == {"t-0"}
