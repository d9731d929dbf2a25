"""The rules for topic names."""

from __future__ import annotations

from minikafka.broker.admin.names import name_error


def test_names_of_ordinary_directories_are_allowed() -> None:
    assert all(not name_error(name) for name in ("a", "A.b_c-9", "...", "a" * 249))
