"""Differences between the lines sent and the lines read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.spark.verify import Difference, compare


def lines(text: str) -> list[bytes]:
    return [letter.encode() for letter in text]


CASES = {
    "nothing": ("abcabc", "abcabc", Difference(0, 0, 0, 0)),
    "nothing at all": ("", "", Difference(0, 0, 0, 0)),
    "one lost": ("abcde", "abde", Difference(1, 0, 0, 0)),
    "the last lost": ("abcde", "abcd", Difference(1, 0, 0, 0)),
    "all lost": ("abc", "", Difference(3, 0, 0, 0)),
    "a run sent twice": ("abcdef", "abcdcdef", Difference(0, 2, 0, 0)),
    "a repeated line lost once": ("axbxc", "axbc", Difference(1, 0, 0, 0)),
    "two changed places": ("abcd", "acbd", Difference(0, 0, 0, 1)),
    "a block moved": ("abcdefgh", "efabcdgh", Difference(0, 0, 0, 2)),
    "one changed": ("abc", "aXc", Difference(1, 0, 1, 0)),
    "one from elsewhere": ("abc", "abXc", Difference(0, 0, 1, 0)),
    "one lost and another twice": ("abcd", "abbd", Difference(1, 1, 0, 0)),
}


@pytest.mark.parametrize(("sent", "read", "difference"), CASES.values(), ids=CASES)
def test_comparison_counts_lost_duplicated_foreign_and_reordered_records(sent, read, difference):
    assert compare(lines(sent), lines(read)) == difference


@given(sent=st.text("abcd", max_size=12), read=st.text("abcdX", max_size=12))
def test_every_record_read_counts_as_kept_duplicated_or_foreign(sent, read):
    found = compare(lines(sent), lines(read))
    kept = len(sent) - found.lost
    assert kept + found.duplicated + found.foreign == len(read)
    assert 0 <= found.reordered <= kept
    assert (found == Difference(0, 0, 0, 0)) == (sent == read)


def test_comparison_of_a_long_file_with_many_equal_lines_is_fast():
    sent = [b"" if index % 2 else b"%d" % index for index in range(20_000)]
    assert compare(sent, sent[:12_000] + sent[11_000:]) == Difference(0, 1_000, 0, 0)
