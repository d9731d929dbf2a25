"""The option map: Spark's names and rules, and errors for invalid options."""

from __future__ import annotations

import pytest
from support.cases import for_each

from minikafka.base.errors import ConfigError
from minikafka.base.model import TopicPartition
from minikafka.security.jaas import PLAIN_MODULE
from minikafka.spark.source.options import Mode, parse
from minikafka.spark.wire.protocol import EARLIEST, LATEST

LEAST = {"kafka.bootstrap.servers": "one:9092", "subscribe": "lines"}


def test_only_server_and_subscription_options_are_required():
    options = parse(LEAST)
    assert options.servers == (("one", 9092),)
    assert options.subscription.topics == ("lines",)
    assert (options.starting.numbers, options.ending.numbers) == (EARLIEST, LATEST)
    assert (options.include_headers, options.fail_on_data_loss, options.check_crcs) == (
        False,
        True,
        True,
    )


def test_fetches_are_larger_by_default_when_values_are_left_out():
    assert parse(LEAST).fetch_bytes == 4 << 20
    assert parse(LEAST | {"includeValue": "false"}).fetch_bytes == 16 << 20
    given = {"includeValue": "false", "kafka.max.partition.fetch.bytes": "5000"}
    assert parse(LEAST | given).fetch_bytes == 5_000


def test_stream_ignores_the_option_for_filters():
    options = parse(LEAST | {"pushFilters": "true"}, Mode.STREAM)
    assert list(options.ignored) == ["pushFilters"]


def test_option_names_and_keyword_values_are_case_insensitive():
    given = {"KAFKA.Bootstrap.Servers": "one:1", "SUBSCRIBE": "t", "startingoffsets": "Earliest"}
    options = parse(
        given | {"ENDINGOFFSETS": "LATEST", "includeheaders": "TRUE", "failondataloss": "False"}
    )
    assert (options.include_headers, options.fail_on_data_loss) == (True, False)


def test_option_lists_may_contain_spaces_and_repetitions():
    servers = "one:1, [::1]:2 ,PLAINTEXT://two:3,"
    options = parse({"kafka.bootstrap.servers": servers, "subscribe": " b, a ,b,"})
    assert options.servers == (("one", 1), ("::1", 2), ("two", 3))
    assert options.subscription.topics == ("b", "a")


def test_offsets_by_partition_accept_earliest_and_latest():
    options = parse(
        LEAST
        | {"subscribe": "lines,more"}
        | {"startingOffsets": '{"lines":{"0":23,"1":-2},"more":{"0":0}}'}
        | {"endingOffsets": '{"lines":{"0":-1,"1":9},"more":{"0":5}}'}
    )
    first, second, third = (TopicPartition(*tp) for tp in (("lines", 0), ("lines", 1), ("more", 0)))
    assert options.starting.numbers == {first: 23, second: EARLIEST, third: 0}
    assert options.ending.numbers == {first: LATEST, second: 9, third: 5}


REFUSED = {
    "no servers": ({"kafka.bootstrap.servers": ""}, "bootstrap.servers is empty: give a value"),
    "a blank group": (LEAST | {"commitOffsetsToGroup": " "}, "Group is empty: .* leave it out"),
    "no topic": ({"subscribe": " , "}, "names no topic"),
    "a server without a port": ({"kafka.bootstrap.servers": "one"}, "host:port"),
    "a server with a strange port": ({"kafka.bootstrap.servers": "one:99999"}, "host:port"),
    "a misspelt name": ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
    "a name like nothing": ({"zzz": "1"}, "unknown option zzz"),
    "a misspelt setting": ({"kafka.isolation.levl": "x"}, "did you mean kafka.isolation.level"),
    "another misspelt setting": ({"kafka.lingr.ms": "5"}, "did you mean kafka.linger.ms"),
    "a start that the connector refuses": (
        {"kafka.auto.offset.reset": "earliest"},
        "use startingOffsets",
    ),
    "two ways to name the topics": ({"assign": '{"lines":[0]}'}, "not both assign and subscribe"),
    "no way to name the topics": ({"subscribe": None}, "none is given"),
    "a pattern that is none": ({"subscribe": None, "subscribePattern": "("}, "is not a pattern"),
    "partitions that are none": ({"subscribe": None, "assign": '{"lines":["0"]}'}, "JSON such as"),
    "no records at all": ({"maxRecordsPerPartition": "0"}, "whole number"),
    "an isolation that is none": ({"kafka.isolation.level": "serializable"}, "read_uncommitted or"),
    "a batch that starts at the end": ({"startingOffsets": "latest"}, "not allowed"),
    "a batch that ends at the start": ({"endingOffsets": "earliest"}, "not allowed"),
    "a partition that starts at its end": (
        {"startingOffsets": '{"lines":{"0":-1}}'},
        "not allowed",
    ),
    "a partition that ends at its start": ({"endingOffsets": '{"lines":{"0":-2}}'}, "not allowed"),
    "a word that is none": ({"startingOffsets": "newest"}, "must be earliest"),
    "a list": ({"startingOffsets": "[1]"}, "must be earliest"),
    "a number": ({"startingOffsets": "7"}, "must be earliest"),
    "JSON that is none": ({"startingOffsets": '{"lines":'}, "must be earliest"),
    "a partition that is no number": ({"startingOffsets": '{"lines":{"x":1}}'}, "must be earliest"),
    "a partition below 0": ({"startingOffsets": '{"lines":{"-1":1}}'}, "'-1' is not a partition"),
    "a partition with zeros": ({"endingOffsets": '{"lines":{"00":1}}'}, "'00' is not a partition"),
    "a partition with a sign": ({"endingOffsets": '{"lines":{"+1":1}}'}, "'.1' is not a partition"),
    "a partition with a space": ({"endingOffsets": '{"lines":{" 1":1}}'}, "' 1' is not a part"),
    "a partition with a line": ({"endingOffsets": '{"lines":{"1_0":1}}'}, "'1_0' is not a part"),
    "a partition of Arabia": ({"endingOffsets": '{"lines":{"\u0663":1}}'}, "is not a partition"),
    "an offset that is no number": ({"startingOffsets": '{"lines":{"0":"1"}}'}, "not an offset"),
    "an offset that is true": ({"startingOffsets": '{"lines":{"0":true}}'}, "not an offset"),
    "an offset of -3": ({"startingOffsets": '{"lines":{"0":-3}}'}, "not an offset"),
    "a topic that is not read": (
        {"startingOffsets": '{"other":{"0":1}}'},
        "names other-0, which subscribe",
    ),
    "an offset that is no JSON": ({"startingOffsets": '{"lines":{"0":NaN}}'}, "NaN is not a JSON"),
    "an offset of many digits": (
        {"endingOffsets": '{"lines":{"0":' + "9" * 5_000 + "}}"},
        "option endingOffsets must be .* the JSON has a number of more than 4300 digits",
    ),
    "a time of many digits": (
        {"startingTimestamp": "9" * 5_000},
        "option startingTimestamp must be Unix milliseconds, not '9{100}'$",
    ),
    "a time beyond 64 bits": ({"startingTimestamp": str(2**63)}, "must be Unix milliseconds"),
    "a number of many digits": ({"maxTasks": "9" * 5_000}, "option maxTasks must be a whole"),
    "a port of many digits": ({"kafka.bootstrap.servers": "one:" + "9" * 5_000}, "host:port"),
    "deep offsets": (
        {"startingOffsets": "[" * 100_000},
        "option startingOffsets must be .*: the JSON is nested too deeply$",
    ),
    "deep times": (
        {"startingOffsetsByTimestamp": '{"lines":' * 100_000},
        "option startingOffsetsByTimestamp must be .*: the JSON is nested too deeply$",
    ),
    "a partition that is named twice": (
        {"startingOffsets": '{"lines":{"0":1,"0":2}}'},
        "the field '0' is given twice",
    ),
    "offsets that are a list": ({"startingOffsets": '{"lines":[1]}'}, "must be earliest"),
    "deep partitions": (
        {"subscribe": None, "assign": "[" * 100_000},
        r"option assign must be JSON such as .*: the JSON is nested too deeply$",
    ),
    "a topic of half a character": (
        {"subscribe": None, "assign": '{"\\ud800":[0]}'},
        "option assign must be .* is not a topic name",
    ),
    "partitions that are a number": ({"subscribe": None, "assign": '{"lines":0}'}, "JSON such as"),
    "partitions that are lists": ({"subscribe": None, "assign": '{"lines":[[0]]}'}, "JSON such as"),
    "an assignment that begins with a byte order mark": (
        {"subscribe": None, "assign": '\ufeff{"lines":[0]}'},
        "byte order mark",
    ),
    "a boolean that is none": ({"includeHeaders": "yes"}, "true or false"),
    "a time that is none": ({"kafka.request.timeout.ms": "1s"}, "whole number"),
    "no time at all": ({"kafkaConsumer.pollTimeoutMs": "0"}, "whole number"),
}


@for_each(REFUSED)
def test_invalid_options_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        parse({k: text for k, text in (LEAST | given).items() if text is not None}, Mode.BATCH)


STREAM_REFUSED = {
    "an end": ({"endingOffsets": "latest"}, "endingOffsets has no effect on a stream"),
    "a delay without a unit": (
        {"minOffsetsPerTrigger": "5", "maxTriggerDelay": "15"},
        "number with a unit",
    ),
    "a minimum above the maximum": (
        {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
        "minOffsetsPerTrigger 5 is above",
    ),
}


@pytest.mark.parametrize(("given", "message"), STREAM_REFUSED.values(), ids=STREAM_REFUSED)
def test_options_that_do_not_suit_a_stream_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        parse(LEAST | given, Mode.STREAM)


def test_stream_starts_at_the_end_by_default_or_where_the_option_says():
    assert parse(LEAST, Mode.STREAM).starting.numbers == LATEST
    assert parse(LEAST | {"startingOffsets": "earliest"}, Mode.STREAM).starting.numbers == EARLIEST


def test_start_time_for_all_partitions_takes_precedence_over_other_starts():
    times = {"startingOffsetsByTimestamp": '{"lines":{"0":7}}', "startingOffsets": "earliest"}
    bound = parse(LEAST | times, Mode.BATCH).starting
    assert (bound.number(TopicPartition("lines", 0)), bound.by_time) == (7, True)
    bound = parse(LEAST | times | {"startingTimestamp": "9"}, Mode.BATCH).starting
    assert (bound.option, bound.numbers, bound.by_time) == ("startingTimestamp", 9, True)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("250ms", 250), ("30s", 30_000), ("15 m", 900_000), ("2h", 7_200_000)],
)
def test_maximum_trigger_delay_is_parsed_with_its_unit(text, milliseconds):
    given = {"minOffsetsPerTrigger": "5", "maxTriggerDelay": text}
    assert parse(LEAST | given, Mode.STREAM).max_delay_ms == milliseconds


SETTINGS = {
    "kafka.max.poll.records": "500",
    "kafka.fetch.min.bytes": "1",
    "kafka.group.id": "g",
    "KAFKA.SESSION.TIMEOUT.MS": "9",
    "kafka.linger.ms": "5",
    "kafka.acks": "all",
    "kafka.retry.backoff.ms": "7",
    "fetchOffset.numRetries": "3",
    "groupIdPrefix": "p",
    "topic": "t",
}


def test_settings_of_the_java_consumer_are_ignored_with_what_happens_instead():
    ignored = parse(LEAST | SETTINGS, Mode.BATCH).ignored
    assert {name.lower() for name in ignored} == {name.lower() for name in SETTINGS}
    assert ignored["kafka.group.id"] == "this data source belongs to no consumer group"
    assert ignored["kafka.linger.ms"] == "it is a setting of writes"
    assert parse(LEAST, Mode.BATCH).ignored == {}


def test_limits_of_micro_batches_are_ignored_by_a_batch_read():
    given = {"maxOffsetsPerTrigger": "5", "maxTriggerDelay": "1m"}
    assert parse(LEAST | given, Mode.BATCH).ignored == dict.fromkeys(
        given, "a batch read has no micro-batches"
    )
    assert [*parse(LEAST | given, Mode.STREAM).ignored] == ["maxTriggerDelay"]


def test_options_that_the_security_protocol_does_not_use_are_ignored_with_the_reason():
    given = {"kafka.sasl.mechanism": "PLAIN", "kafka.ssl.truststore.location": "ca.pem"}
    reason = "kafka.security.protocol is PLAINTEXT, which does not use it"
    assert parse(LEAST | given).ignored == dict.fromkeys(given, reason)
    encrypted = parse(LEAST | given | {"kafka.security.protocol": "ssl"})
    assert [*encrypted.ignored] == ["kafka.sasl.mechanism"]
    assert encrypted.security.ssl_truststore_location == "ca.pem"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("kafka.security.protocol", "TLS", "option kafka.security.protocol must be one of"),
        ("kafka.ssl.trustore.location", "p", "unknown option kafka.ssl.trustore.location; did you"),
        ("kafka.sasl.oauthbearer.scope", "s", "unknown option kafka.sasl.oauthbearer.scope; known"),
        ("kafka.ssl.ca.location", "p", "option kafka.ssl.ca.location is a key of librdkafka"),
        ("kafka.sasl.client.callback.handler.class", "C", "write kafka.sasl.jaas.config"),
    ],
)
def test_option_of_security_that_cannot_be_used_is_refused_by_its_name(name, value, message):
    with pytest.raises(ConfigError, match=message):
        parse(LEAST | {name: value})


def test_secrets_are_not_in_the_text_of_the_options():
    jaas = f'{PLAIN_MODULE} required username="u" password="hidden";'
    given = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.jaas.config": jaas}
    for name in ("truststore.password", "keystore.password", "key.password", "keystore.key"):
        given[f"kafka.ssl.{name}"] = "hidden"
    assert "hidden" not in repr(parse(LEAST | given))


def test_options_that_spark_adds_are_accepted():
    given = {"queryName": "q", "checkpointLocation": "c"}
    assert parse(LEAST | given).ignored == {}
    assert [*parse(LEAST | {"path": "/p"}).ignored] == ["path"]


def test_only_the_options_among_the_properties_of_a_table_are_used():
    properties = {"provider": "minikafka", "owner": "root", "comment": "c", "anything": "1"}
    options = parse({f"option.{name}": text for name, text in LEAST.items()} | LEAST | properties)
    assert options.subscription.topics == ("lines",)
    with pytest.raises(ConfigError, match="unknown option zzz"):
        parse(properties | {f"option.{name}": text for name, text in (LEAST | {"zzz": ""}).items()})


def test_error_without_any_option_says_how_to_query_a_table():
    with pytest.raises(ConfigError, match=r"CREATE TEMPORARY VIEW, or .* t WITH"):
        parse({}, Mode.BATCH)
