"""Sentences about brokers whose clocks differ."""

from __future__ import annotations

import pytest

from minikafka.tools.cli.cluster.health import clock_notes


def answers(**clocks: int) -> dict[int, dict[str, dict[str, int]]]:
    """Return the answers of brokers whose clocks show these times."""
    times = {name[1:]: clock for name, clock in clocks.items()}
    return {
        int(own): {"clock_offsets_ms": {id_: at - now for id_, at in times.items() if id_ != own}}
        for own, now in times.items()
    }


@pytest.mark.parametrize("base", [0, -5_000_000, 123])
def test_clock_that_is_far_from_the_others_is_named(base: int) -> None:
    found = answers(b1=base, b2=base + 120_000, b3=base + 9_999, b4=base - 18_000_000)
    assert clock_notes(found) == (
        ["the clock of broker 2 is 120.0 s ahead of the clocks of the others; set it"],
        [
            "the clock of broker 4 is 18000.0 s behind the clocks of the others, so it may refuse records "
            "(message.timestamp.after.max.ms) or delete them early (retention.ms); set it"
        ],
    )


def test_clocks_that_differ_little_and_unknown_clocks_are_not_named() -> None:
    assert clock_notes({}) == ([], [])
    assert clock_notes({1: {"clock_offsets_ms": {}}}) == ([], [])
    assert clock_notes(answers(b1=0, b2=9_000, b3=-900)) == ([], [])


def test_brokers_that_have_not_measured_yet_do_not_count() -> None:
    found = {**answers(b1=0, b2=60_000, b3=5), 2: {"clock_offsets_ms": {}}}
    notes, _ = clock_notes(found)
    assert [note.split(" is ")[0] for note in notes] == ["the clock of broker 2"]
