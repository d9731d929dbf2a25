"""The arguments of Kafka's scripts: those of the virtual machine, and options of the tools."""

from __future__ import annotations

import pytest

from minikafka.base.errors import MinikafkaError
from minikafka.tools.cli.kafka_home.java_arguments import parse_java_arguments
from minikafka.tools.cli.kafka_home.options import Names, parse

NAMES = Names(["list"], ["topic", "partitions"], ["state"], ["props"])


def test_java_arguments_give_properties_class_and_its_arguments():
    words = ["-Xmx1G", "-Da=1", "-cp", "x/*", "-Da=2", "-Dempty", "kafka.Kafka", "-Db=3", "f"]
    found = parse_java_arguments(words)
    assert found.properties == {"a": "2", "empty": ""}
    assert (found.main_class, found.arguments) == ("kafka.Kafka", ["-Db=3", "f"])


def test_java_arguments_without_a_class_name_none():
    assert parse_java_arguments(["-Xmx1G", "-cp"]).main_class == ""


def test_options_take_values_as_next_word_or_after_an_equals_sign():
    found = parse(["--list", "--topic", "a", "--topic=b=c"], NAMES)
    assert found.has("list")
    assert found.values("topic") == ["a", "b=c"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--frob"], "--frob is not a recognized option"),
        (["--frob=1"], "--frob is not a recognized option"),
        (["--lis"], "--lis is not a recognized option"),
        (["--list=x"], "--list is not a recognized option"),
        (["--topic"], "Option topic requires an argument"),
        (["word"], "word is not an option: options begin with --"),
    ],
)
def test_options_refuse_words_that_kafka_does_not_know(words, text):
    with pytest.raises(MinikafkaError) as raised:
        parse(words, NAMES)
    assert str(raised.value) == text


def test_arguments_refuse_a_second_value_where_one_is_asked_for():
    found = parse(["--topic", "a", "--topic", "b"], NAMES)
    with pytest.raises(MinikafkaError, match="Found multiple arguments for option topic"):
        found.value("topic")


def test_arguments_refuse_a_missing_option_and_a_wrong_number():
    found = parse(["--partitions", "x"], NAMES)
    with pytest.raises(MinikafkaError, match=r'Missing required argument "\[topic\]"'):
        found.required("topic")
    with pytest.raises(MinikafkaError, match="Cannot parse argument 'x' of option partitions"):
        found.number("partitions")


def test_options_with_optional_values_and_lists_end_at_the_next_option():
    words = ["--state", "--props", "a=1", "b=2", "--state", "Empty", "--list"]
    found = parse(words, NAMES)
    assert (found.values("state"), found.values("props")) == (["Empty"], ["a=1", "b=2"])
    assert found.has("list")
