"""Tables of columns: layouts for terminals."""

from __future__ import annotations

from operator import itemgetter

from minikafka.tools.cli.terminal.columns import Column, lay_out

DIRECTORY = Column("directory", "", itemgetter(2), is_below=True)


def test_each_last_cell_follows_its_row_when_first_cells_have_lines_of_their_own() -> None:
    columns = (Column("id", "", itemgetter(0)), Column("address", "", itemgetter(1)), DIRECTORY)
    grid = lay_out(columns, [("1", "127.0.0.1:9092", "/data")], 12)
    assert [line.plain.split() for line in grid.lines] == [
        [word] for word in ("id", "address", "directory", "1", "127.0.0.1:9092", "/data")
    ]


def test_last_column_stands_beside_the_last_line_of_each_row_if_it_fits() -> None:
    topic = "a" * 38
    columns = (Column("topic", "", itemgetter(0)), Column("size", "", itemgetter(1)), DIRECTORY)
    grid = lay_out(columns, [(topic, "5 B", "/data")], 40)
    assert [line.plain.split() for line in grid.lines] == [
        ["topic", "size", "directory"],
        [topic],
        ["5", "B", "/data"],
    ]


def test_narrow_terminal_leaves_out_columns_in_the_order_of_their_numbers() -> None:
    columns = [
        Column(name, "", itemgetter(0), drop=drop)
        for name, drop in zip("abcd", (0, 2, 0, 1), strict=True)
    ]
    assert [lay_out(columns, ["x"], width).hidden for width in (10, 9, 7, 4, 3)] == [
        [],
        ["d"],
        ["d"],
        ["d", "b"],
        ["d", "b"],
    ]
