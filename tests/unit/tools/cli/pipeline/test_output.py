"""The summary of a pipeline as a person reads it."""

from __future__ import annotations

from minikafka.spark.pipelines.session.report import Bar, Summary, Table
from minikafka.tools.cli.pipeline.output import TerminalDisplay, print_summary


def test_pipeline_summary_is_printed_as_lines_and_tables(capsys):
    table = Table("lost", ("partition", "offset"), ((0, 5), (10, None)))
    facts = {"records_read": 1_234, "share": 0.5, "exact": True}
    print_summary(Summary("check of [events]", facts, (table,)))
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[:4] == [
        "check of [events]",
        "  records read  1,234",
        "  share         0.500",
        "  exact         yes",
    ]
    assert [line.split() for line in lines[5:]] == [
        ["lost"],
        ["partition", "offset"],
        ["0", "5"],
        ["10", "-"],
    ]


def test_without_a_terminal_progress_goes_to_stderr_and_table_rows_to_stdout(capsys):
    with TerminalDisplay(shown=True) as display:
        display.show([Bar("read events", 1, 4, "1 of 4 tasks")])
        display.note("a note")
        display.table(Table("batch 0", ("value",), (("a",),)))
    captured = capsys.readouterr()
    assert captured.err == "read events 25 % (1 of 4 tasks)\na note\n"
    assert captured.out.split() == ["batch", "0", "value", "a"]


def test_table_values_are_printed_unformatted_with_escaped_control_characters(capsys):
    row = (1_772_359_200_000, 0.00012, None, True, "[b]\x1b[2J")
    columns = ("ts", "a_b", "_malformed", "ok", "text")
    with TerminalDisplay(shown=False) as display:
        display.table(Table("batch 0", columns, (row,)))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["batch", "0"],
        list(columns),
        ["1772359200000", "0.00012", "null", "true", "[b]\\u001b[2J"],
    ]


def test_table_rows_go_to_standard_error_when_the_output_is_json(capsys):
    with TerminalDisplay(shown=False, as_json=True) as display:
        display.show([Bar("read events", 1, 4)])
        display.note("a note")
        display.table(Table("batch 0", ("value",), (("a",),)))
    captured = capsys.readouterr()
    assert (captured.out, captured.err.split()) == ("", ["batch", "0", "value", "a"])
