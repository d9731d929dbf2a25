"""The command `configs`: its requests, output and exit codes."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result
from support.commands.scripted_admin import ScriptedAdmin

from minikafka.base.model import TopicPartition
from minikafka.client.administration.results import (
    ConfigSource,
    Resource,
    ResourceType,
    Setting,
    Synonym,
)
from minikafka.tools.cli.configs import configs
from minikafka.tools.cli.configs.describe import line

TOPIC = Resource(ResourceType.TOPIC, "t")


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> ScriptedAdmin:
    scripted = ScriptedAdmin({TopicPartition("t", 0): (1,)})
    monkeypatch.setattr("minikafka.client.Client", lambda servers, **_: scripted)
    return scripted


def call(*arguments: str) -> Result:
    return CliRunner().invoke(configs, [*arguments, "--bootstrap", "h:1"])


def test_configs_set_and_configs_delete_change_only_the_named_keys(admin: ScriptedAdmin) -> None:
    done = call("set", "--topic", "t", "retention.ms=5", "cleanup.policy=compact,delete")
    assert (done.exit_code, done.stdout) == (0, "Completed updating config for topic t.\n")
    assert admin.configs[TOPIC] == {"retention.ms": "5", "cleanup.policy": "compact,delete"}
    assert json.loads(call("delete", "--topic", "t", "retention.ms", "--json").stdout) == {
        "resource": "topic",
        "name": "t",
        "changed": {"retention.ms": None},
    }
    assert admin.configs[TOPIC] == {"cleanup.policy": "compact,delete"}


def test_configs_delete_names_the_keys_that_the_topic_did_not_set(admin: ScriptedAdmin) -> None:
    call("set", "--topic", "t", "retention.ms=5")
    done = call("delete", "--topic", "t", "retention.ms", "no.such")
    assert (done.exit_code, done.stderr) == (
        0,
        "minikafka: topic t had no setting of its own for no.such\n",
    )


def test_configs_of_an_unknown_topic_fail_at_once_with_a_similar_name(admin: ScriptedAdmin) -> None:
    admin.replicas = {TopicPartition("events", 0): (1,)}
    for words in (["set", "a=1"], ["delete", "a"], ["describe"]):
        done = call(*words, "--topic", "evnts")
        assert done.exit_code == 1
        assert str(done.exception).startswith("UNKNOWN_TOPIC_OR_PARTITION: evnts: no such topic")
        assert getattr(done.exception, "hint", "") == "did you mean events?"
    assert admin.configs == {}


def test_configs_set_changes_one_broker_or_the_default_of_all_brokers(admin: ScriptedAdmin) -> None:
    key, rate = "log.cleaner.threads", "leader.replication.throttled.rate"
    assert call("set", "--broker", "1", f"{key}=2").stdout.endswith("for broker 1.\n")
    assert call("set", "--brokers-default", f"{rate}=3").stdout.endswith("for all brokers.\n")
    assert admin.configs[Resource(ResourceType.BROKER, "1")] == {key: "2"}
    assert admin.configs[Resource(ResourceType.BROKER, "")] == {rate: "3"}


def test_configs_set_warns_about_an_unknown_key(admin: ScriptedAdmin) -> None:
    done = call("set", "--brokers-default", "min.insync.replica=2", "log.cleaner.threads=2")
    assert (done.exit_code, done.stdout) == (0, "Completed updating config for all brokers.\n")
    assert done.stderr == (
        "minikafka: warning: min.insync.replica is stored without effect: "
        "unknown key min.insync.replica; did you mean min.insync.replicas?\n"
    )
    stored = {"min.insync.replica": "2", "log.cleaner.threads": "2"}
    assert admin.configs[Resource(ResourceType.BROKER, "")] == stored


def test_configs_set_does_not_warn_about_a_key_of_a_listener(admin: ScriptedAdmin) -> None:
    for key in ("max.connections=5", "ssl.keystore.location=/keys.p12"):
        done = call("set", "--broker", "1", f"listener.name.out.{key}")
        assert (done.exit_code, done.stderr) == (0, "")


def test_describe_shows_settings_with_their_sources(admin: ScriptedAdmin) -> None:
    call("set", "--topic", "t", "retention.ms=5")
    assert call("describe", "--topic", "t").stdout == (
        "Changed configs of topic t:\n  retention.ms=5 source=DYNAMIC_TOPIC_CONFIG synonyms={}\n"
    )
    shown = json.loads(call("describe", "--topic", "t", "--json").stdout)
    assert shown["configs"][0]["source"] == "DYNAMIC_TOPIC_CONFIG"


def test_described_setting_lists_every_source_and_hides_a_secret_value() -> None:
    synonyms = (
        Synonym("retention.ms", "5", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        Synonym("log.retention.ms", "9", ConfigSource.STATIC_BROKER_CONFIG),
    )
    source = ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert line(Setting("retention.ms", "5", source, False, False, synonyms)) == (
        "  retention.ms=5 source=DYNAMIC_TOPIC_CONFIG synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5,"
        " STATIC_BROKER_CONFIG:log.retention.ms=9}"
    )
    secret = line(Setting("s", None, ConfigSource.DEFAULT_CONFIG, True, True, ()))
    assert secret == "  s=(sensitive) read-only source=DEFAULT_CONFIG synonyms={}"


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe"],
        ["describe", "--topic", "t", "--broker", "1"],
        ["set", "--topic", "t"],
        ["set", "--topic", "t", "nonsense"],
        ["set", "--topic", "t", "=5"],
        ["delete", "--topic", "t"],
    ],
)
def test_configs_exits_with_code_2_when_its_arguments_are_invalid(
    admin: ScriptedAdmin, arguments: list[str]
) -> None:
    assert call(*arguments).exit_code == 2
