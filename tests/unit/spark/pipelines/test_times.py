"""The text of a time, in UTC, and the number of a time that is no date."""

from __future__ import annotations

import pytest

from minikafka.spark.pipelines.times import printed


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (1_772_359_200_123_000, "2026-03-01T10:00:00.123Z"),
        (-62_135_596_800_000_000, "0001-01-01T00:00:00.000Z"),
        (253_402_300_799_999_999, "9999-12-31T23:59:59.999999Z"),
        (253_402_300_800_000_000, 253_402_300_800_000),
        (-62_135_596_800_000_001, -62_135_596_800_001),
        (2**63 - 1, 9_223_372_036_854_775),
        (-(2**63), -9_223_372_036_854_776),
    ],
)
def test_time_is_a_date_in_utc_or_the_number_of_its_milliseconds(micros, text):
    assert printed(micros) == text
