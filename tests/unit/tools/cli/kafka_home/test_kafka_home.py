"""`kafka-home`: the folder, and the table of its classes."""

from __future__ import annotations

import importlib
import re
import stat
import zipfile

from click.testing import CliRunner

from minikafka.tools.cli.kafka_home.kafka_home import kafka_home
from minikafka.tools.cli.kafka_home.kafka_tool import kafka_tool
from minikafka.tools.cli.kafka_home.tables import CLASSES

SECRET = "config/minikafka-secret.properties"


def make(directory):
    return CliRunner().invoke(kafka_home, [str(directory)])


def test_home_has_scripts_files_and_names_of_jars(tmp_path):
    home = tmp_path / "new" / "kafka"
    assert make(home).exit_code == 0
    scripts = list((home / "bin").iterdir())
    assert len(scripts) == len(CLASSES) + 5
    assert all(script.stat().st_mode & stat.S_IXUSR for script in scripts)
    assert (home / SECRET).stat().st_mode & 0o777 == 0o600
    with zipfile.ZipFile(next((home / "libs").glob("kafka-clients-3.9.*.jar"))) as jar:
        assert b"version=3.9." in jar.read("kafka/kafka-version.properties")


def test_command_line_of_zookeeper_is_not_taken_for_that_of_a_broker(tmp_path):
    make(tmp_path / "home")
    script = (tmp_path / "home/bin/kafka-run-class.sh").read_text()
    assert re.search(r"kafka\.kafka", script, re.IGNORECASE) is None


def test_home_keeps_secret_and_settings_when_it_is_made_again(tmp_path):
    make(tmp_path / "home")
    secret = (tmp_path / "home" / SECRET).read_text()
    (tmp_path / "home/config/server.properties").write_text("mine")
    (tmp_path / "home/bin/kafka-topics.sh").write_text("old")
    assert make(tmp_path / "home").exit_code == 0
    assert (tmp_path / "home" / SECRET).read_text() == secret
    assert (tmp_path / "home/config/server.properties").read_text() == "mine"
    assert "TopicCommand" in (tmp_path / "home/bin/kafka-topics.sh").read_text()


def test_home_is_not_made_in_a_directory_with_other_files(tmp_path):
    (tmp_path / "file").touch()
    assert "has other files: name a new directory" in str(make(tmp_path).exception)
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_every_class_of_the_table_has_a_function_or_a_reason():
    for name, tool in CLASSES.items():
        module, _, function = tool.work.partition(".")
        package = "minikafka.tools.cli.kafka_home.tools"
        if tool.work:
            assert callable(getattr(importlib.import_module(f"{package}.{module}"), function)), name
        assert bool(tool.work) != bool(tool.refusal), name


def test_tool_refuses_a_class_that_minikafka_lacks_with_the_reason():
    ran = CliRunner().invoke(kafka_tool, ["-Xmx1G", "kafka.tools.StorageTool", "format"])
    assert str(ran.exception) == "kafka-storage.sh: minikafka runs with ZooKeeper, without KRaft"
    ran = CliRunner().invoke(kafka_tool, ["kafka.Unknown"])
    assert str(ran.exception) == "minikafka has no class kafka.Unknown of Kafka"


def test_tool_prints_its_version_and_options():
    ran = CliRunner().invoke(kafka_tool, ["org.apache.kafka.tools.TopicCommand", "--version"])
    assert ran.output.startswith("3.9.")
    ran = CliRunner().invoke(kafka_tool, ["org.apache.kafka.tools.TopicCommand"])
    assert ran.exit_code == 1
    assert "--bootstrap-server" in ran.output
