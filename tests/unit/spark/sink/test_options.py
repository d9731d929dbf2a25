"""The options of a write."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError
from minikafka.spark.sink.options import parse

LEAST = {"kafka.bootstrap.servers": "one:9092"}


def test_bootstrap_servers_are_the_only_required_sink_option():
    options = parse(LEAST)
    assert (options.servers, options.topic, options.origin, options.codec) == (
        (("one", 9092),),
        None,
        None,
        0,
    )


def test_sink_accepts_acks_minus_1_and_enabled_idempotence():
    parse(LEAST | {"kafka.acks": "-1", "kafka.enable.idempotence": "TRUE"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kafka.acks": "1"}, "kafka.acks must be all or -1"),
        ({"kafka.enable.idempotence": "false"}, "must be true"),
        ({"kafka.compression.type": "brotli"}, "none or gzip or snappy or lz4 or zstd"),
        ({"kafka.transactional.id": "t"}, "without transactions"),
        ({"subscribe": "t"}, "use topic"),
        ({"topics": "t"}, "did you mean topic"),
    ],
)
def test_options_without_an_effect_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        parse(LEAST | given)
