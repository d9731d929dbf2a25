"""The comparison of copies with their input in scripts/copy_check.py: it reports every difference."""

from __future__ import annotations

from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[3] / "scripts"


@pytest.mark.parametrize(
    ("copies", "said"),
    [
        ([b"a", b"b"], None),
        ([b"a"], "1 copies of 2 records, different from number 1 on: 1 are missing, 0 repeated"),
        ([b"a", b"b", b"b"], "different from number 2 on: 0 are missing, 1 repeated"),
        ([b"b", b"a"], "different from number 0 on: 0 are missing, 0 repeated"),
        ([b"a", b"x"], "different from number 1 on: 1 are missing, 0 repeated"),
    ],
)
def test_copies_must_equal_the_input_in_order(
    monkeypatch: pytest.MonkeyPatch, copies: list[bytes], said: str | None
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    from copy_check import differences
    from copy_job import transform

    source = {0: [(0, b"a"), (2, b"b")], 1: []}
    target = {0: [(at, transform(value)) for at, value in enumerate(copies)], 1: []}
    problems = differences(source, target)
    assert len(problems) == (said is not None)
    assert said is None or said in problems[0]
