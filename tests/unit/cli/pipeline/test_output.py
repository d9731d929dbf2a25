"""The summary of a pipeline as a person reads it."""

from __future__ import annotations

from minikafka.cli.pipeline.output import TerminalDisplay, print_summary
from minikafka.pipeline.report import Bar
from minikafka.pipeline.summary import Summary, Table


def test_summary_is_printed_as_lines_and_tables(capsys):
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


def test_progress_is_a_line_outside_a_terminal_and_rows_go_to_standard_output(capsys):
    with TerminalDisplay(shown=True) as display:
        display.show([Bar("read events", 1, 4, "1 of 4 tasks")], 0)
        display.note("a note")
        display.table(Table("batch 0", ("value",), (("a",),)))
    captured = capsys.readouterr()
    assert captured.err == "0 of 1 steps: read events 25 %\na note\n"
    assert captured.out.split() == ["batch", "0", "value", "a"]


def test_rows_go_to_standard_error_next_to_a_json_document(capsys):
    with TerminalDisplay(shown=False, as_json=True) as display:
        display.show([Bar("read events", 1, 4)], 0)
        display.note("a note")
        display.table(Table("batch 0", ("value",), (("a",),)))
    captured = capsys.readouterr()
    assert (captured.out, captured.err.split()) == ("", ["batch", "0", "value", "a"])
