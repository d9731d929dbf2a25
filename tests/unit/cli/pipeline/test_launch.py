"""Options that all pipelines have, and what happens without Spark."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from minikafka.base.errors import MinikafkaError
from minikafka.cli.main import main
from minikafka.cli.pipeline import launch as module
from minikafka.cli.pipeline.group import pipeline
from minikafka.cli.pipeline.launch import Launch, launch_options


@click.command()
@launch_options
def show(launch: Launch) -> None:
    """Print the options."""
    click.echo(repr(launch))


def test_settings_of_spark_are_given_by_name():
    result = CliRunner().invoke(show, ["--set", "spark.x_y=1=2", "--set", "spark.z=", "-b", "h:1"])
    assert "conf={'spark.x_y': '1=2', 'spark.z': ''}" in result.output
    assert "master='local[*]'" in result.output


def test_setting_without_a_value_is_a_usage_error():
    result = CliRunner().invoke(show, ["--set", "spark.x"])
    assert result.exit_code == 2
    assert "'spark.x' is not KEY=VALUE" in result.output


def test_missing_packages_are_named_with_the_command_that_installs_them(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "pyspark" else object())
    with pytest.raises(MinikafkaError, match=r"need pyspark: pip install 'minikafka\[spark\]'"):
        CliRunner().invoke(show, catch_exceptions=False)


def test_copy_of_partitions_with_a_query_is_a_usage_error():
    words = ["copy", "a", "--to", "b", "--checkpoint", "c", "--keep-partitions", "--sql", "x"]
    result = CliRunner().invoke(pipeline, words)
    assert result.exit_code == 2
    assert "select the column partition" in result.output


def test_check_without_a_verdict_ends_with_exit_code_2(monkeypatch, capsys):
    def fail(*_: object) -> None:
        raise MinikafkaError("no history")

    monkeypatch.setattr(Launch, "run", fail)
    monkeypatch.setattr(sys, "argv", ["minikafka", "pipeline", "check", "--replicas", "here"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert capsys.readouterr().err == "minikafka: no history\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "there is no such file; name the TOML file"), (b"\xff", "not UTF-8 text; name the")],
)
def test_file_that_cannot_be_read_is_named(tmp_path, content, message):
    file = tmp_path / "f.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(MinikafkaError, match=message):
        CliRunner().invoke(pipeline, ["run", str(file)], catch_exceptions=False)


@pytest.mark.parametrize("master", ["nonsense", "", "spark://host", "local[", "mesos://h:1"])
def test_master_that_spark_does_not_have_is_refused(master):
    ran = CliRunner().invoke(pipeline, ["lag", "g", "--master", master])
    assert ran.exit_code == 2
    assert "is no master of Spark: name local, local[N]" in " ".join(ran.output.split())


def test_help_of_every_command_loads_no_spark():
    program = (
        "import sys; from click.testing import CliRunner\n"
        "from minikafka.cli.pipeline.group import pipeline\n"
        "for name in ['', *pipeline.list_commands(None)]:\n"
        "    assert CliRunner().invoke(pipeline, [*filter(None, [name]), '--help']).exit_code == 0\n"
        "print([one for one in ('pyspark', 'numpy', 'pyarrow', 'rich') if one in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"
