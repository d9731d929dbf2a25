"""The options of `groups reset-offsets`, and its CSV files."""

from __future__ import annotations

from typing import Any

import click
import pytest

from minikafka.base.errors import MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.tools.cli.groups import groups
from minikafka.tools.cli.groups.offset_resets import (
    PLAN,
    Scenario,
    TopicScope,
    chosen_scenario,
    clamped,
    parse_datetime,
    parse_duration,
    parse_scopes,
    plan_rows,
    read_csv,
    write_csv,
)
from minikafka.tools.cli.terminal.columns import lines

CONTEXT = click.Context(groups)
OPTION = click.Option(["--x"])
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_reset_scope_is_a_topic_or_some_of_its_partitions() -> None:
    found = parse_scopes(CONTEXT, OPTION, ["t", "u:0,12"])
    assert found == [TopicScope("t"), TopicScope("u", (0, 12))]


@pytest.mark.parametrize("text", ["t:", "t:a", "t:1,", ":1", "", "t:1:2", "t:-1"])
def test_malformed_reset_scope_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="must be TOPIC, or TOPIC:0,1,2"):
        parse_scopes(CONTEXT, OPTION, [text])


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT1S", 1_000),
        ("PT0.25S", 250),
        ("P1D", 86_400_000),
        ("P1DT2H3M4S", 93_784_000),
        ("pt90m", 5_400_000),
        ("P0D", 0),
    ],
)
def test_duration_is_read_in_iso_form(text: str, milliseconds: int) -> None:
    assert parse_duration(CONTEXT, OPTION, text) == milliseconds


@pytest.mark.parametrize("text", ["P", "PT", "P1DT", "1h", "PT1D", "P1H", "", "-PT1S"])
def test_malformed_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(click.BadParameter, match="for example PT2H"):
        parse_duration(CONTEXT, OPTION, text)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-02T00:00:00.500", 86_400_500),
        ("1970-01-02T01:00:00.000+01:00", 86_400_000),
        ("1970-01-01T00:00:01Z", 1_000),
        ("1700000000123", 1_700_000_000_123),
    ],
)
def test_time_is_utc_unless_it_has_a_zone(text: str, milliseconds: int) -> None:
    assert parse_datetime(CONTEXT, OPTION, text) == milliseconds


def test_text_that_is_not_a_time_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="is not a time"):
        parse_datetime(CONTEXT, OPTION, "yesterday")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"to-earliest": True, "shift-by": None}, Scenario("to-earliest", True)),
        ({"to-offset": 0, "to-latest": False}, Scenario("to-offset", 0)),
    ],
)
def test_chosen_reset_scenario_is_the_only_option_with_a_value(
    given: dict[str, Any], expected: Scenario
) -> None:
    assert chosen_scenario(given) == expected


@pytest.mark.parametrize("given", [{"a": None}, {"a": True, "b": 3}])
def test_reset_without_exactly_one_scenario_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(click.UsageError, match="choose one of --a"):
        chosen_scenario(given)


@pytest.mark.parametrize("with_group", [True, False])
def test_reset_offsets_exported_as_csv_are_read_back_unchanged(with_group: bool) -> None:
    plan = {"g": {T0: 5, T1: 7}}
    lines = list(write_csv(plan, with_group=with_group))
    assert lines == (["g,t,0,5", "g,t,1,7"] if with_group else ["t,0,5", "t,1,7"])
    assert read_csv(("\n".join(lines) + "\n\n").encode(), ["g"]) == plan


def test_csv_lines_of_groups_that_were_not_named_are_left_out() -> None:
    assert read_csv(b'"a,b",t,0,5\nh,t,0,6\n', ["a,b"]) == {"a,b": {T0: 5}}


@pytest.mark.parametrize(
    ("data", "groups", "problem"),
    [
        (b"t,0,1", ["g", "h"], "line 1 is not topic,partition,offset for one group"),
        (b"g,t,0,1\nt,0", ["g"], "line 2 is not"),
        (b"t,x,1", ["g"], "line 1: partition and offset must be numbers, got 't,x,1'"),
        (b"t,0,1\n\xe4,0,1", ["g"], "line 2 is not UTF-8 text"),
        (b"t,0,1\n" + b"t" * 200_000, ["g"], "line 2 is not CSV: field larger than field limit"),
    ],
)
def test_error_about_a_malformed_csv_line_names_it(
    data: bytes, groups: list[str], problem: str
) -> None:
    with pytest.raises(MinikafkaError, match=problem):
        read_csv(data, groups)


def test_offset_outside_of_the_log_is_replaced_with_a_warning() -> None:
    warned: list[str] = []
    wanted = {T0: 3, T1: 99, TopicPartition("u", 0): 1}
    first = dict.fromkeys(wanted, 2)
    end = dict.fromkeys(wanted, 10)
    assert list(clamped(wanted, first, end, warned.append).values()) == [3, 10, 2]
    assert warned == [
        "offset 99 is above the end of t-1: 10 is used instead",
        "offset 1 is below the start of u-0: 2 is used instead",
    ]


def test_reset_plan_has_the_columns_of_kafkas_tool() -> None:
    assert list(lines(PLAN, plan_rows({"a-group-with-a-long-name": {T0: 5}}))) == [
        "GROUP                    TOPIC           PARTITION  NEW-OFFSET",
        "a-group-with-a-long-name t               0          5",
    ]
