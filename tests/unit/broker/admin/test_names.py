"""The rules for topic names."""

from __future__ import annotations

from minikafka.broker.admin.names import TakenNames, name_error


def test_valid_topic_names_are_accepted() -> None:
    assert all(not name_error(name) for name in ("a", "A.b_c-9", "...", "a" * 249))


def test_names_that_differ_only_in_dot_and_underscore_collide() -> None:
    taken = TakenNames(["a.b", "c_d"])
    taken.add("e.f_g")
    assert [taken.colliding(name) for name in ("a_b", "c.d", "e_f.g", "a.b", "ab")] == [
        "a.b",
        "c_d",
        "e.f_g",
        None,
        None,
    ]
    taken.add("a_b")
    assert (taken.colliding("a.b"), taken.colliding("a_b")) == ("a_b", "a.b")
