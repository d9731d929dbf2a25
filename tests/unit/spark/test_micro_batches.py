"""A micro-batch is identified by the text of its file in the checkpoint, wherever the checkpoint is named."""

from __future__ import annotations

import os

import pytest

from minikafka.spark.micro_batches import plan_of, read_plan

TEXT = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1700000000000}\n{"lines":{"0":{"offset":3}}}'


@pytest.mark.parametrize("prefix", ["", "file:", "file://", "relative"])
def test_plan_is_read_from_a_path_or_a_url(tmp_path, prefix):
    place = tmp_path / "a b%20c"
    (place / "offsets").mkdir(parents=True)
    (place / "offsets" / "7").write_text(TEXT)
    checkpoint = os.path.relpath(place) if prefix == "relative" else f"{prefix}{place}/"
    assert read_plan(checkpoint, 7) == plan_of(TEXT)
    assert plan_of(TEXT).time_ms == 1_700_000_000_000
    assert read_plan(checkpoint, 8) is None


def test_plan_differs_if_the_same_offsets_are_planned_again():
    # The offset of a source of files is a number in another log, so equal offsets may stand for other files.
    assert plan_of(TEXT).digest != plan_of(TEXT.replace("1700000000000", "1700000000001")).digest


@pytest.mark.parametrize("text", ["", "v1", "v1\n{", 'v1\n{"batchTimestampMs":"now"}', "v1\n[]"])
def test_time_of_a_plan_without_a_time_is_unknown(text):
    assert plan_of(text).time_ms is None


@pytest.mark.parametrize("checkpoint", [None, "", "unknown://host/path", "s3a://bucket/c"])
def test_plan_in_a_checkpoint_that_cannot_be_read_is_unknown(checkpoint):
    assert read_plan(checkpoint, 0) is None
