"""Parsing of durations as people write them."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError
from minikafka.tools.cli.pipeline.launch import seconds


@pytest.mark.parametrize(
    ("text", "found"),
    [("30s", 30), ("5m", 300), ("1 hour", 3_600), ("2 Days", 172_800), ("10 min", 600)],
)
def test_duration_is_parsed_to_seconds(text, found):
    assert seconds("--size", text) == found


@pytest.mark.parametrize("text", ["", "5", "0s", "s", "5 parsecs", "-1m", "1.5h"])
def test_text_that_is_not_a_duration_is_refused(text):
    with pytest.raises(ConfigError, match="--size must be a duration such as 30s"):
        seconds("--size", text)
