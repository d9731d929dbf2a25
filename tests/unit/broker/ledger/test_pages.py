"""A ledger in pages, which bound the memory and the time of one request."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.broker.ledger import pages
from minikafka.broker.ledger.pages import Page, read_page
from minikafka.broker.ledger.writer import file_name
from minikafka.kafka.messages.steps import finished
from minikafka.runtime.storage import DiskStorage


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE_BYTES", 40)
    monkeypatch.setattr(pages, "SCANNED_BYTES", 120)
    monkeypatch.setattr(pages, "STEP_BYTES", 16)


def write(directory: Path, number: int, *lines: bytes, end: bytes = b"") -> None:
    (directory / file_name(number)).write_bytes(b"".join(b"%b\n" % line for line in lines) + end)


def page(directory: Path, position: str = "", word: bytes = b"") -> Page:
    return finished(read_page(DiskStorage(), str(directory), position, lambda line: word in line))


def every_page(directory: Path, word: bytes = b"") -> list[Page]:
    found = [page(directory, "", word)]
    while found[-1].following:
        found.append(page(directory, found[-1].following, word))
    return found


def test_pages_together_have_every_line_once_in_the_order_of_writing(tmp_path: Path) -> None:
    lines = [b"line %03d" % number for number in range(60)]
    write(tmp_path, 9, *lines[:25])
    write(tmp_path, 10, *lines[25:])
    found = every_page(tmp_path)
    assert [line for one in found for line in one.lines] == lines
    assert len(found) > 5
    assert all(sum(map(len, one.lines)) < 40 + 16 for one in found)


def test_page_ends_after_a_bounded_part_of_the_files_without_a_wanted_line(tmp_path: Path) -> None:
    write(tmp_path, 1, *[b"other"] * 100, b"wanted")
    found = every_page(tmp_path, b"wanted")
    assert [line for one in found for line in one.lines] == [b"wanted"]
    assert [one.lines for one in found[:-1]] == [[]] * (len(found) - 1)
    assert len(found) > 4


def test_step_reads_little_and_a_long_line_is_returned_whole(tmp_path: Path) -> None:
    write(tmp_path, 1, b"a", b"b" * 100, b"c")
    assert [line for one in every_page(tmp_path) for line in one.lines] == [b"a", b"b" * 100, b"c"]
    write(tmp_path, 1, *[b"word"] * 12)
    steps = read_page(DiskStorage(), str(tmp_path), "", lambda line: True)
    assert len(list(steps)) >= 3


def test_unfinished_last_line_is_left_for_the_next_question(tmp_path: Path) -> None:
    write(tmp_path, 1, b"whole", end=b'{"unfin')
    assert page(tmp_path) == Page([b"whole"], "")


def test_file_that_was_removed_between_two_pages_is_skipped(tmp_path: Path) -> None:
    write(tmp_path, 1, *[b"line of file 1"] * 10)
    write(tmp_path, 2, b"file 2")
    position = page(tmp_path).following
    assert position.startswith("1:")
    (tmp_path / file_name(1)).unlink()
    assert page(tmp_path, position) == Page([b"file 2"], "")


@pytest.mark.parametrize("position", ["x", "1", "1:", "-1:2", "1:2:3", "1:99999999999999999999"])
def test_position_that_no_page_has_named_is_refused(tmp_path: Path, position: str) -> None:
    with pytest.raises(ValueError, match="is no position of a ledger"):
        page(tmp_path, position)


def test_reader_that_follows_begins_near_the_end_and_gets_each_later_line_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "TAIL_BYTES", 20)

    def follow(position: str) -> Page:
        steps = read_page(DiskStorage(), str(tmp_path), position, lambda _: True, follows=True)
        return finished(steps)

    assert follow("") == Page([], "")
    lines = [b"line %03d" % number for number in range(30)]
    write(tmp_path, 1, b"old")
    write(tmp_path, 2, *lines[:20])
    found = follow("")
    assert found.lines == lines[18:20]
    assert follow(found.following) == Page([], found.following)
    write(tmp_path, 2, *lines[:22], end=b"half of a li")
    again = follow(found.following)
    assert again.lines == lines[20:22]
    write(tmp_path, 2, *lines[:23])
    write(tmp_path, 3, *lines[23:25])
    assert follow(again.following).lines == lines[22:25]
    (tmp_path / file_name(2)).unlink()
    assert follow(again.following).lines == lines[23:25]
