"""TOML errors name the position of the mistake."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError
from minikafka.base.toml import place_of, read_toml, statements, table_of


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
        ("a = " + "[" * 100_000, "^invalid TOML: it is nested too deeply$"),
        ("a = " + "9" * 5_000, "^invalid TOML: a number has more than 4300 digits$"),
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


def test_unfinished_document_is_reported_with_its_last_line() -> None:
    with pytest.raises(ConfigError, match="at line 3, the last one"):
        read_toml('a = 1\n[b]\nc = "x')


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("[broker]\nnum.partitons = 3", "unknown key num.partitons; did you …", "line 2, column 1"),
        ("a = [\n1,\n2]\n  b = 4", "b must be text, got 4", "line 4, column 3"),
        ("[broker]\nn = 3\n[broker.1]\nn = -3", "n must be at least 1, got -3", "line 4, column 1"),
        ("[broker]\nn = -3\n[broker.1]\nn = 3", "n must be at least 1, got -3", "line 2, column 1"),
        ("broker.num.x = 1\nbroker.2.y.z = 1", "unknown key y.z", "line 2, column 1"),
        ("[a]\n[broker.9]\nx = 1", "[broker.9] is for a broker that …", "line 2, column 1"),
        ("[b\n'x.y' = 1", "unknown key x.y", "line 2, column 1"),
        ("a.min = 5\na.max = 4", "min must be at most max", "line 1, column 1"),
        ("a = 1", "a port is in use", "line 1, column 1"),
        ("port = 1", "not readable", ""),
        ("", "unknown key x", ""),
        (
            '[broker]\nzookeeper.connect = "h"\nlistener.name.in.plain.sasl.jaas.config = "f"',
            "sasl.jaas.config: cannot connect",
            "line 3, column 1",
        ),
    ],
)
def test_place_of_a_message_is_the_line_of_the_key_that_it_names(
    text: str, message: str, place: str
) -> None:
    assert place_of(text, message) == place


def test_statements_of_an_invalid_document_are_read_one_by_one() -> None:
    text = '[a]\nb = 1\nc 2\n[d\ne = {f = 1}\n# g\n[[h.i]]\nj = """\n[k]\n"""'
    found = [(one.line, one.table, one.names, one.values is None) for one in statements(text)]
    assert found == [
        (1, "a", [], False),
        (2, "a", ["a.b"], False),
        (3, "a", [], True),
        (4, "?", [], True),
        (5, "?", ["?.e.f"], False),
        (7, "h.i", [], False),
        (8, "h.i", ["h.i.j"], False),
    ]
