"""The description in words of the leader epochs around an offset."""

from __future__ import annotations

import pytest

from minikafka.checks.replicas.pipeline import surrounding


@pytest.mark.parametrize(
    ("offset", "words"),
    [
        (0, "1 from 0, 2 from 10"),
        (10, "1 from 0, 2 from 10, 5 from 30"),
        (99, "2 from 10, 5 from 30"),
    ],
)
def test_leader_epochs_around_an_offset_are_listed_with_their_first_offsets(offset, words):
    assert surrounding([(5, 30), (1, 0), (2, 10)], offset) == words
