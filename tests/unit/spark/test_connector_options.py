"""Every option that Spark's own Kafka connector publishes is accepted, or refused by its name."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.spark import connector_options
from support.spark.connector_options import OPTIONS, SETTINGS, of_reads, of_writes
from support.spark.spark_connector import JARS, needs_connector

_OUTCOMES = "yes", "no effect: ", "refused: "


@pytest.mark.parametrize("of", [of_reads, of_writes])
def test_every_published_option_has_an_effect_or_a_reason_why_not(of):
    for name in connector_options.names():
        outcome = of(name)
        assert outcome.startswith(_OUTCOMES), name
        assert "unknown option" not in outcome, name
        assert outcome not in _OUTCOMES[1:], name


def test_name_that_the_connector_does_not_publish_is_unknown():
    assert "unknown option" in of_reads("kafka.no.such.setting")
    assert "unknown option" in of_writes("noSuchOption")


def test_options_that_both_sources_have_are_accepted():
    ignored = {"topic", "groupIdPrefix", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"}
    assert {name for name in OPTIONS if of_reads(name) != "yes"} == ignored


@needs_connector
def test_options_are_those_in_the_jars_of_the_connector():
    jars = {Path(jar).name.rpartition("-")[0]: Path(jar) for jar in JARS}
    settings = connector_options.settings_in(jars["kafka-clients"])
    assert settings - set(SETTINGS) == {"ssl.client.auth"}, "a setting of brokers"
    assert {name for name in SETTINGS if "." in name} <= settings
    texts = connector_options.option_texts_in(jars["spark-sql-kafka-0-10_2.13"])
    own = {name.lower() for name in OPTIONS}
    assert own - texts == set()
    of_options = ("offset", "starting", "ending", "max", "min", "fetch", "kafkaconsumer", "include")
    assert {t for t in texts - own if t.startswith(of_options)} <= {"offset"}
