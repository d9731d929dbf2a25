"""The JSON form of the offsets in a checkpoint."""

from __future__ import annotations

import json

import pytest

from minikafka.base.errors import ConfigError
from minikafka.base.model import TopicPartition
from minikafka.spark.source.positions import (
    behind,
    first_starts,
    from_json,
    is_plain,
    to_json,
    to_plain,
)
from minikafka.spark.wire.leaders import Position

POSITIONS = {
    TopicPartition("b", 10): Position(3, 1),
    TopicPartition("b", 9): Position(2**40, 0, "id"),
    TopicPartition("a", 0): Position(0, -1),
}


def test_positions_are_read_back_from_their_json():
    assert from_json(json.loads(json.dumps(to_json(POSITIONS)))) == POSITIONS


def test_position_from_a_checkpoint_without_topic_ids_has_an_empty_topic_id():
    tree = {"a": {"0": {"offset": 5, "leaderEpoch": 2}}}
    assert from_json(tree) == {TopicPartition("a", 0): Position(5, 2, "")}


def test_equal_positions_give_equal_json_text():
    turned = dict(reversed(POSITIONS.items()))
    assert json.dumps(to_json(turned)) == json.dumps(to_json(POSITIONS))
    assert list(to_json(POSITIONS)) == ["a", "b"]
    assert list(to_json(POSITIONS)["b"]) == ["9", "10"]


def test_plain_offsets_of_the_connector_are_positions_without_epoch_and_topic_id():
    tree = {"t": {"0": 23, "11": 0}, "u": {"1": 2**40}}
    assert is_plain(tree)
    assert from_json(tree) == {
        TopicPartition("t", 0): Position(23, -1),
        TopicPartition("t", 11): Position(0, -1),
        TopicPartition("u", 1): Position(2**40, -1),
    }
    assert to_plain(to_json(from_json(tree))) == tree


def test_end_of_a_first_micro_batch_has_the_start_of_each_partition():
    start = {TopicPartition("b", 9): Position(7, 0, "id"), TopicPartition("a", 0): Position(0, -1)}
    end = to_json(POSITIONS, start)
    assert from_json(end) == POSITIONS
    assert not is_plain(end)
    assert first_starts(end) == {
        TopicPartition("b", 9): Position(7, -1, "id"),
        TopicPartition("a", 0): Position(0, -1),
    }


def test_end_without_a_start_differs_from_an_end_with_only_new_partitions():
    assert first_starts(to_json(POSITIONS)) is None
    assert first_starts({"t": {"0": 5}}) is None
    assert first_starts(to_json(POSITIONS, {})) == {}
    assert first_starts({}) == {}


@pytest.mark.parametrize(
    "tree", [{"t": {"0": -1}}, {"t": {"0": True}}, {"t": 5}, {"t": {"x": {"offset": 1}}}]
)
def test_checkpoint_offsets_that_this_source_did_not_write_are_refused(tree):
    with pytest.raises(ConfigError, match="use a new checkpoint"):
        from_json(tree)


def test_partitions_are_behind_by_the_number_of_unread_offsets():
    latest = to_json(POSITIONS | {TopicPartition("a", 0): Position(7, 0)})
    read = to_json(
        {TopicPartition("a", 0): Position(5, 0), TopicPartition("b", 10): Position(9, 0)}
    )
    assert behind(read, latest) == {TopicPartition("a", 0): 2, TopicPartition("b", 10): 0}
