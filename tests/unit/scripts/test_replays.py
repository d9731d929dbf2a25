"""The checks of Spark streams' output in scripts/replays.py: they report every error, but no allowed duplicate."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scripts.replays import Copy, Origin, at_least_once, exactly_once

SOURCE = {(partition, offset): b"%d" % offset for partition in range(2) for offset in range(10)}


def copies() -> list[Copy]:
    """Return one `Copy` of each source record, as if written in micro-batches of five records per partition."""
    return [
        Copy(0, place, value, Origin("q", place[1] // 5, place[0], place[1] % 5))
        for place, value in sorted(SOURCE.items(), key=lambda item: (item[0][1] // 5, item[0]))
    ]


def problems(found: list[Copy], *interrupted: int) -> str:
    return "; ".join(at_least_once(SOURCE, found, interrupted)[0])


def test_exactly_once_check_accepts_a_table_with_every_record_once():
    assert exactly_once(SOURCE, reversed(SOURCE.items())) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda rows: rows[1:], "1 records missing in the table, first 0:0"),
        (lambda rows: [*rows, rows[3]], "1 records more than once in the table, first 0:3"),
        (
            lambda rows: [((0, 0), b"x"), *rows[1:]],
            "1 records different from the source, first 0:0",
        ),
        (lambda rows: [*rows, ((5, 0), b"0")], "1 records different from the source, first 5:0"),
    ],
)
def test_exactly_once_check_states_how_the_table_differs_from_the_topic(change, problem):
    (found,) = exactly_once(SOURCE, change([*SOURCE.items()]))
    assert problem in found


def test_at_least_once_check_accepts_a_copy_with_every_record_once():
    assert at_least_once(SOURCE, copies(), ()) == ([], 0)


def test_duplicates_are_allowed_only_in_interrupted_micro_batches():
    first = [copy for copy in copies() if copy.origin.batch == 0]
    replayed = first[:7] + copies()
    assert at_least_once(SOURCE, replayed, {0, 4}) == ([], 7)
    assert problems(replayed, 1) == "duplicates in micro-batches 0, which no death interrupted"


def test_at_least_once_check_finds_records_copied_by_two_queries():
    other = [replace(copy, origin=replace(copy.origin, query="r")) for copy in copies()[10:]]
    assert problems([*copies()[:10], *other]).startswith("2 queries wrote the copy")


def test_at_least_once_check_finds_a_duplicate_from_another_micro_batch():
    strange = replace(copies()[0], origin=Origin("q", 1, 0, 0))
    assert "duplicates with different origins" in problems([*copies(), strange], 0, 1)


@pytest.mark.parametrize("place", [0, 12, -1])
def test_at_least_once_check_finds_a_record_missing_in_the_copy(place):
    found = copies()
    lost = found.pop(place)
    assert f"missing in the copy, first {lost.source[0]}:{lost.source[1]}" in problems(found)


def test_at_least_once_check_finds_a_record_altered_in_the_copy():
    found = copies()
    found[4] = replace(found[4], value=b"other")
    assert "different from the source" in problems(found)


def test_at_least_once_check_finds_records_copied_out_of_order():
    found = copies()
    found.insert(0, found.pop(4))
    assert "4 records copied out of order, first 0:0" in problems(found)
