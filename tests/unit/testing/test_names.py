"""Names that no other test uses."""

from __future__ import annotations

import re

from minikafka.runtime.clock import SystemRng
from minikafka.testing.names import LENGTH_MAX, unique_name


def test_name_keeps_the_readable_part_in_the_characters_of_kafka():
    name = unique_name("test_orders[a b/ü]", SystemRng())
    assert re.fullmatch(r"test_orders-a-b-[0-9a-f]{8}", name)


def test_name_of_nothing_readable_and_of_a_long_label_are_valid():
    assert re.fullmatch(r"minikafka-[0-9a-f]{8}", unique_name("ü", SystemRng()))
    assert len(unique_name("x" * 300, SystemRng())) == LENGTH_MAX + 9


def test_names_of_one_label_differ():
    assert unique_name("a", SystemRng()) != unique_name("a", SystemRng())
