"""Parsing of configuration values: a value of a wrong type or outside the bounds raises an error."""

from __future__ import annotations

import pytest

from minikafka.base.config.keys import INT_MAX, LONG_MAX, ConfigType, Key, flatten, parse_all
from minikafka.base.errors import ConfigError


def key(kind: ConfigType, **rest) -> Key:
    return Key(kind, None, "", name="some.key", **rest)


@pytest.mark.parametrize(
    ("kind", "value", "parsed"),
    [
        (ConfigType.BOOLEAN, True, True),
        (ConfigType.BOOLEAN, " False ", False),
        (ConfigType.INT, "12", 12),
        (ConfigType.INT, -1, -1),
        (ConfigType.LONG, str(LONG_MAX), LONG_MAX),
        (ConfigType.DOUBLE, "0.25", 0.25),
        (ConfigType.DOUBLE, 1, 1.0),
        (ConfigType.LIST, "a, b,,c", ("a", "b", "c")),
        (ConfigType.LIST, ["a", "b"], ("a", "b")),
        (ConfigType.LIST, "", ()),
        (ConfigType.STRING, "", ""),
        (ConfigType.PASSWORD, "x", "x"),
    ],
)
def test_values_of_toml_and_of_kafkas_text_form_are_accepted(kind, value, parsed):
    found = key(kind).parse(value)

    assert found == parsed
    assert type(found) is type(parsed)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (ConfigType.BOOLEAN, 1),
        (ConfigType.BOOLEAN, "yes"),
        (ConfigType.INT, True),
        (ConfigType.INT, "2.5"),
        (ConfigType.INT, 1.5),
        (ConfigType.INT, 3.0),
        (ConfigType.LONG, 3.0),
        (ConfigType.INT, "4.0"),
        (ConfigType.INT, ""),
        (ConfigType.INT, "1_000"),
        (ConfigType.LONG, "1_000"),
        (ConfigType.DOUBLE, "1_0.5"),
        (ConfigType.INT, "²"),
        (ConfigType.INT, float("inf")),
        (ConfigType.INT, float("nan")),
        (ConfigType.INT, INT_MAX + 1),
        (ConfigType.INT, -INT_MAX - 2),
        (ConfigType.LONG, LONG_MAX + 1),
        (ConfigType.INT, "9" * 5000),
        (ConfigType.DOUBLE, "much"),
        (ConfigType.LIST, 5),
        (ConfigType.STRING, 5),
        (ConfigType.STRING, None),
        (ConfigType.PASSWORD, 12),
    ],
)
def test_value_of_a_wrong_type_is_refused_with_the_name_of_the_key(kind, value):
    with pytest.raises(ConfigError, match=r"^some\.key must be"):
        key(kind).parse(value)


@pytest.mark.parametrize("value", [-0.1, 1.1, "nan"])
def test_fraction_or_nan_outside_the_bounds_of_a_key_is_refused(value):
    with pytest.raises(ConfigError, match="from 0 to 1"):
        key(ConfigType.DOUBLE, low=0, high=1).parse(value)


def test_bounds_of_a_key_are_inclusive():
    row = key(ConfigType.INT, low=-1, high=9)

    assert [row.parse(-1), row.parse(9)] == [-1, 9]
    for value in (-2, 10):
        with pytest.raises(ConfigError, match="from -1 to 9"):
            row.parse(value)


def test_list_may_be_empty_but_each_of_its_items_must_be_an_allowed_value():
    row = key(ConfigType.LIST, choices=("delete", "compact"))

    assert row.parse(" compact , delete ") == ("compact", "delete")
    assert row.parse(" ") == row.parse([]) == ()
    for value in ("delete,shred", "delete,", ","):
        with pytest.raises(ConfigError, match="delete, compact"):
            row.parse(value)


def test_secret_is_never_shown_even_in_an_error():
    row = key(ConfigType.PASSWORD, low=16)

    with pytest.raises(ConfigError) as short:
        row.parse("hunter2")
    with pytest.raises(ConfigError) as wrong:
        row.parse(["hunter2"])

    assert "hunter2" not in str(short.value) + str(wrong.value)
    assert row.text("hunter2") is None


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (ConfigType.BOOLEAN, True, "true"),
        (ConfigType.LONG, -1, "-1"),
        (ConfigType.LIST, ("a", "b"), "a,b"),
        (ConfigType.STRING, None, None),
        (ConfigType.DOUBLE, 0.5, "0.5"),
    ],
)
def test_value_is_converted_to_kafkas_text_form(kind, value, text):
    assert key(kind).text(value) == text


def test_unknown_key_is_refused_with_the_most_similar_key():
    keys = {"log.segment.bytes": key(ConfigType.INT), "log.dirs": key(ConfigType.LIST)}

    with pytest.raises(
        ConfigError, match=r"^unknown key log\.segment\.byte; did you mean log\.segment\.bytes\?$"
    ):
        parse_all(keys, {"log.segment.byte": 1})


@pytest.mark.parametrize("name", ["完全に違う", "xyzzy.foo"])
def test_unknown_key_without_a_similar_one_is_refused_without_a_suggestion(name):
    few = {"log.segment.bytes": key(ConfigType.INT), "log.dirs": key(ConfigType.LIST)}
    many = {f"zookeeper.connect.{number}": key(ConfigType.INT) for number in range(9)}

    with pytest.raises(ConfigError, match=r"; known keys are log\.segment\.bytes, log\.dirs$"):
        parse_all(few, {name: 1})
    with pytest.raises(ConfigError, match=r"; docs/configuration\.md lists all keys$"):
        parse_all(many, {name: 1})


def test_nested_toml_tables_become_dotted_names():
    nested = {"log": {"segment": {"bytes": 1}, "dirs": ["a"]}, "broker.id": 3}

    assert flatten(nested) == {"log.segment.bytes": 1, "log.dirs": ["a"], "broker.id": 3}


def test_key_written_both_dotted_and_as_a_nested_table_is_refused():
    twice = {"log.segment.bytes": 2, "log": {"segment": {"bytes": 1}}}

    with pytest.raises(ConfigError, match=r"^log\.segment\.bytes is given twice"):
        flatten(twice)
    with pytest.raises(ConfigError, match=r"^log\.segment\.bytes is given twice"):
        flatten(dict(reversed(twice.items())))


@pytest.mark.parametrize("text", ["", "*", "0:1", "0:1, 12:34"])
def test_list_items_must_match_the_pattern_of_the_key_unless_the_list_is_a_star(text):
    row = Key(ConfigType.LIST, (), "", form="[0-9]+:[0-9]+", name="k")
    assert row.text(row.parse(text)) == text.replace(" ", "")
    for wrong in ("a", "0:1,*", "0", "0:1:2"):
        with pytest.raises(ConfigError, match="k must be"):
            row.parse(wrong)
