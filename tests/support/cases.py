"""Tests that go through a long table of cases as one test, because pytest needs 5 ms to collect and run each test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any


def for_each(cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Call the test for each case: a tuple of all arguments, or one argument.

    The first failure ends the test. Its traceback names the case: the key if `cases` is a mapping, else the arguments.
    Use `pytest.mark.parametrize` for a short table, and for tests with fixtures.
    """
    table = list(cases.items() if isinstance(cases, Mapping) else ((case, case) for case in cases))
    assert table, "a test without cases cannot fail"

    def with_cases(test: Callable[..., None]) -> Callable[[], None]:
        def test_all_cases() -> None:
            for name, case in table:
                try:
                    test(*(case if isinstance(case, tuple) else (case,)))
                except BaseException as error:
                    error.add_note(f"in the case {name!r}")
                    raise

        for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
            setattr(test_all_cases, attribute, getattr(test, attribute))
        return test_all_cases

    return with_cases
