"""The options of the Spark data source have meanings, from which the page about them is written."""

from __future__ import annotations

from types import ModuleType

import pytest

from minikafka.spark.sink import options as sink_options
from minikafka.spark.source import options as source_options


@pytest.mark.parametrize("options", [source_options, sink_options])
def test_every_option_of_spark_has_a_meaning_that_ends_with_a_full_stop(options: ModuleType):
    assert list(options.MEANINGS)
    assert set(options.MEANINGS) == set(options.DEFAULTS)
    assert [name for name, text in options.MEANINGS.items() if not text.endswith(".")] == []
