"""The check of arguments that are collections."""

from __future__ import annotations

import pytest

from minikafka.base.arguments import several
from minikafka.base.model import TopicPartition

T0 = TopicPartition("t", 0)


def test_single_value_is_a_list_of_one() -> None:
    assert several(str, "g-x") == ["g-x"]
    assert several(TopicPartition, T0) == [T0]
    assert several(int, 0) == [0]


def test_values_of_any_collection_are_returned_in_order() -> None:
    assert several(str, ("b", "a")) == ["b", "a"]
    assert several(TopicPartition, iter([T0, ("u", 1)])) == [T0, TopicPartition("u", 1)]
    assert several(str, {}) == []


@pytest.mark.parametrize("values", ["t-0", [("t", 0, 1)], ["t-0"], ("t", 0), 7, b"t", [None]])
def test_value_of_another_type_is_refused_with_the_expected_type(values: object) -> None:
    with pytest.raises(TypeError, match=r"expected TopicPartition\(topic, partition\), or a list"):
        several(TopicPartition, values)  # type: ignore[arg-type]


def test_bytes_and_lists_are_no_names() -> None:
    for values in (b"t", [["t"]]):
        with pytest.raises(TypeError, match=r"^expected str, or a list of these, got "):
            several(str, values)  # type: ignore[arg-type]
