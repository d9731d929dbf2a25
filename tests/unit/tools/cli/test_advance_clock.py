"""What `minikafka advance-clock` prints."""

from __future__ import annotations

import json

from minikafka.base.model import TopicPartition
from minikafka.tools.cli.advance_clock import _lines, _object
from minikafka.tools.cluster.time_and_state.removals import ClockAdvance, Removed

T0 = TopicPartition("t", 0)


def test_everything_that_became_due_has_a_line_and_a_place_in_the_json() -> None:
    found = ClockAdvance(
        5, {T0: Removed(3, 70)}, {T0: Removed(1, 9)}, {"g": (T0,)}, ("id",), ("token",), 2
    )
    assert _lines(found) == [
        "t-0: retention removed 3 records, 70 bytes",
        "t-0: compaction removed 1 records, 9 bytes",
        "group g: the offsets of t-0 have expired",
        "transactional id id: expired",
        "delegation token token: expired",
        "2 states of producers were forgotten",
    ]
    shown = json.loads(json.dumps(_object(found)))
    assert shown["retained"] == [{"topic": "t", "partition": 0, "records": 3, "bytes": 70}]
    assert shown["offsets"] == [{"group": "g", "topic": "t", "partition": 0}]


def test_nothing_due_is_said() -> None:
    assert _lines(ClockAdvance(5, {}, {}, {}, (), (), 0)) == ["Nothing became due."]
