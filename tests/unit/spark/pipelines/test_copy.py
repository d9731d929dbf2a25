"""The pipeline that `copy` runs: its options, its query and its sink."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minikafka.base.errors import ConfigError
from minikafka.spark.pipelines.copy import CopySettings, definition_of
from minikafka.spark.pipelines.run.definition import TopicSink
from minikafka.spark.pipelines.streams.streams import AVAILABLE_NOW, MAX_OFFSETS_PER_TRIGGER
from minikafka.spark.sink import options as sink_options
from minikafka.spark.source import options as source_options
from minikafka.spark.source.options import Mode
from minikafka.spark.wire.protocol import EARLIEST, Isolation

SETTINGS = CopySettings(
    topics=("a", "b"),
    to="c",
    from_servers="one:1",
    to_servers="two:2",
    checkpoint="/checkpoint",
)


def test_copy_reads_committed_records_from_the_start_and_fails_if_some_are_lost():
    found = definition_of(SETTINGS)
    options = source_options.parse(found.sources[0].options, Mode.STREAM)
    assert options.servers == (("one", 1),)
    assert options.subscription.topics == ("a", "b")
    assert options.starting.numbers == EARLIEST
    assert options.isolation is Isolation.READ_COMMITTED
    assert options.include_headers
    assert options.fail_on_data_loss
    assert options.max_offsets == int(MAX_OFFSETS_PER_TRIGGER)
    assert (found.checkpoint, found.trigger) == ("/checkpoint", AVAILABLE_NOW)


def test_copy_writes_to_the_other_cluster_with_the_codec_and_the_origin_header():
    found = definition_of(replace(SETTINGS, compression="lz4", origin_header="origin"))
    assert isinstance(found.sink, TopicSink)
    options = sink_options.parse(found.sink.options)
    assert (options.servers, options.topic) == ((("two", 2),), "c")
    assert (options.codec, options.origin) == (3, "origin")
    assert sink_options.parse(definition_of(SETTINGS).sink.options).origin is None


@pytest.mark.parametrize(
    ("given", "query"),
    [
        ({}, "select key, value, headers, timestamp from source"),
        ({"keep_partitions": True}, "select key, value, headers, timestamp, partition from source"),
        ({"sql": "select value from source"}, "select value from source"),
    ],
)
def test_copy_keeps_key_value_headers_and_timestamp_unless_a_query_is_given(given, query):
    assert [step.sql for step in definition_of(replace(SETTINGS, **given)).steps] == [query]


def test_copy_with_skip_lost_continues_after_lost_records():
    options = definition_of(replace(SETTINGS, skip_lost=True)).sources[0].options
    assert not source_options.parse(options, Mode.STREAM).fail_on_data_loss


def test_copy_of_a_topic_to_itself_is_refused_only_on_the_same_cluster():
    with pytest.raises(ConfigError, match="a would be copied to itself"):
        definition_of(replace(SETTINGS, to="a", to_servers="one:1"))
    assert definition_of(replace(SETTINGS, to="a"))
