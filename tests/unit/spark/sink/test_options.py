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
        ({"kafka.transactional.id": "t"}, "set exactlyOnce to true"),
        ({"kafka.acks": "0", "kafka.linger.ms": "5"}, "kafka.acks must be all or -1"),
        ({"kafka.partitioner.ignore.keys": "true"}, "must be false"),
        ({"kafka.interceptor.classes": "a.B"}, "no Java producer"),
        ({"topics": "t"}, "did you mean topic"),
        ({"createTopics": "yes"}, "createTopics must be true or false"),
    ],
)
def test_options_that_promise_something_else_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        parse(LEAST | given)


def test_settings_of_the_java_producer_are_ignored_with_what_happens_instead():
    given = {
        "kafka.linger.ms": "5",
        "kafka.RETRIES": "3",
        "kafka.max.request.size": "9",
        "kafka.max.poll.records": "1",
        "kafka.allow.auto.create.topics": "true",
    }
    assert parse(LEAST | given).ignored == {
        "kafka.linger.ms": "a task sends whenever it has collected 8 MiB of rows, and at its end",
        "kafka.retries": "a batch is sent again until kafka.delivery.timeout.ms has passed",
        "kafka.max.request.size": "kafka.batch.size and the topic's max.message.bytes limit a batch",
        "kafka.max.poll.records": "it is a setting of reads",
        "kafka.allow.auto.create.topics": "option createTopics creates missing topics",
    }


def test_options_of_the_source_are_ignored_by_the_sink():
    given = {"subscribe": "t", "startingOffsets": "earliest", "includeheaders": "true"}
    assert [*parse(LEAST | given).ignored] == ["subscribe", "startingOffsets", "includeHeaders"]


def test_exactly_once_takes_kafkas_default_for_the_transaction_timeout():
    options = parse(LEAST | {"exactlyOnce": "true"})
    assert (options.exactly_once, options.transaction_timeout_ms) == (True, 60_000)
    assert (options.id_prefix, options.first_batch, options.ignored) == (
        "minikafka-spark",
        None,
        {},
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kafka.acks": "1"}, "kafka.acks must be all or -1"),
        ({"exactlyOnceFrom": "-1"}, "exactlyOnceFrom must be a whole number from 0"),
        ({"transactionalIdPrefix": "a b"}, "transactionalIdPrefix must have 1 to 150 letters"),
        ({"transactionalIdPrefix": "a" * 151}, "transactionalIdPrefix must have 1 to 150"),
        ({"kafka.transaction.timeout.ms": "0"}, "must be a whole number from 1"),
        ({"kafka.transactional.id": "t"}, "transactionalIdPrefix to choose the beginning"),
    ],
)
def test_options_that_contradict_exactly_once_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        parse(LEAST | {"exactlyOnce": "true"} | given)


def test_settings_of_transactions_have_no_effect_without_exactly_once():
    given = {
        "exactlyOnceFrom": "3",
        "transactionalIdPrefix": "x",
        "kafka.transaction.timeout.ms": "9",
    }
    instead = "rows are written in transactions only if exactlyOnce is true"
    assert parse(LEAST | given).ignored == dict.fromkeys(given, instead)
