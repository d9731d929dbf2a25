"""TOML errors name the position of the mistake."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError
from minikafka.base.toml import read_toml, table_of


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[cluster", "invalid TOML: .* line 1|invalid TOML: .* end of document"),
        (
            "[cluster]\nbrokers = 3\nbrokers = 4",
            "^brokers is given twice, the second time in line 3; remove one$",
        ),
        (
            "[broker]\nnum.partitions = 3\nnum.partitions = 4 # x\n\n[broker.1]\n",
            r"^num\.partitions is given twice, the second time in line 3; remove one$",
        ),
        ("[broker]\n[broker]\n", "invalid TOML: .*broker.* twice .*line 2"),
    ],
)
def test_invalid_toml_is_reported_in_one_line_with_its_line_number(text, said):
    with pytest.raises(ConfigError, match=said) as caught:
        read_toml(text)

    assert "\n" not in str(caught.value)


def test_missing_toml_table_is_empty_and_a_plain_value_for_a_table_is_refused():
    document = read_toml("a = 1\n[b]\nc = 2\n")

    assert (table_of(document, "b"), table_of(document, "z")) == ({"c": 2}, {})
    with pytest.raises(ConfigError, match=r"^a must be a table: \[a\]$"):
        table_of(document, "a")
