"""Names of topics."""

from __future__ import annotations

from minikafka.broker.admin.names import name_error


def test_names_that_are_directories_of_their_own_are_fine() -> None:
    assert all(not name_error(name) for name in ("a", "A.b_c-9", "...", "a" * 249))
