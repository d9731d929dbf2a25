"""The options that all pipelines have, and the error of a pipeline without Spark."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from minikafka.base.errors import MinikafkaError
from minikafka.client import retries
from minikafka.spark.pipelines.session import context
from minikafka.spark.pipelines.session.report import Summary
from minikafka.tools.cli.main import main
from minikafka.tools.cli.pipeline import launch as module
from minikafka.tools.cli.pipeline import pipeline
from minikafka.tools.cli.pipeline.launch import Launch, launch_options


@click.command()
@launch_options
def show(launch: Launch) -> None:
    """Print the options."""
    click.echo(repr(launch))


def test_option_set_passes_settings_to_spark_unchanged():
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


def test_pipeline_copy_refuses_a_query_together_with_keep_partitions():
    words = ["copy", "a", "--to", "b", "--checkpoint", "c", "--keep-partitions", "--sql", "x"]
    result = CliRunner().invoke(pipeline, words)
    assert result.exit_code == 2
    assert "select the column partition" in result.output


def test_pipeline_check_that_raises_an_error_exits_with_code_2(monkeypatch, capsys):
    def fail(*_: object, **__: object) -> None:
        raise MinikafkaError("no history")

    monkeypatch.setattr(Launch, "run", fail)
    monkeypatch.setattr(sys, "argv", ["minikafka", "pipeline", "check", "--replicas", "here"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert capsys.readouterr().err == "minikafka: no history\n"


def test_interrupted_restore_says_that_the_target_may_be_incomplete(monkeypatch, tmp_path):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Launch, "run", interrupted)
    words = ["restore", "clicks", "--from", str(tmp_path), "--to", "again", "-b", NOWHERE]
    ended = CliRunner().invoke(pipeline, words)
    assert "again may hold an incomplete copy: restore to a new topic" in ended.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "does not exist"), (b"\xff", "not UTF-8 text; name the"), (b"[x", "invalid TOML")],
)
def test_error_about_an_unreadable_pipeline_file_says_why(tmp_path, content, message):
    file = tmp_path / "f.toml"
    if content is not None:
        file.write_bytes(content)
    ended = CliRunner().invoke(pipeline, ["run", str(file)])
    assert (ended.exit_code, message in ended.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("window t --size 30", "--size must be a duration such as 30s"),
        ("window t --size 0m", "--size must be a duration such as 30s"),
        ("window t --slide", "requires an argument"),
        ("window t --slide 2h --size 1h", "is longer than the window"),
        ("window t --watermark 5m", "--watermark has no effect without --checkpoint"),
        ("window t --checkpoint c --to w --watermark 5", "--watermark must be a duration"),
        ("window t --by name", "--by must be one of key, topic"),
        ("window t --continuous", "--continuous needs --checkpoint"),
        ("window t u --to u", "--to must be a topic that is not read by this command, not u"),
        ("window t --parquet a --to b", "give one of --parquet and --to"),
        ("window t --plot a.gif", "must end in .png or .html"),
        ("lag g --for 3", "--for must be a duration"),
        ("lag g --every 0s", "--every must be a duration"),
        ("lag g --output a.csv", "must end in .parquet or .jsonl"),
        ("lag g --output nowhere/a.jsonl", "does not exist"),
        ("lag g --plot a.gif", "must end in .png or .html"),
        ("ledger nowhere", "does not exist"),
        ("ledger --plot a.gif", "must end in .png or .html"),
        ("restore t --from nowhere", "does not exist"),
        ("run nowhere.toml", "does not exist"),
        ("copy t --to t --checkpoint c -b h:1", "t would be copied to itself"),
        ("archive t --to {}", "is a file"),
        ("window t --parquet {}", "is a file"),
        ("archive t --to d --partition-by date", "--partition-by needs --format delta or iceberg"),
        ("archive t --to d --format delta --table a.b", "have no effect on the format delta"),
        ("archive t --to d --format iceberg --table a", "table must be NAMESPACE.NAME, not 'a'"),
        ("compact", "name the directory of the table, or --catalog with its properties"),
        ("compact nowhere", "there is no table of Delta Lake or Iceberg"),
        ("compact d --format iceberg --table a", "table must be NAMESPACE.NAME, not 'a'"),
        ("compact d --format delta --storage region=a", "has no effect on a directory"),
        ("compact d --format delta --expire 5", "--expire must be a duration such as 30s"),
    ],
)
def test_wrong_option_of_a_pipeline_is_a_usage_error(words, said):
    ended = CliRunner().invoke(pipeline, words.format(__file__).split())
    assert (ended.exit_code, said in " ".join(ended.stderr.split())) == (2, True), ended.stderr


@pytest.mark.parametrize("master", ["nonsense", "", "spark://host", "local[", "mesos://h:1"])
def test_invalid_spark_master_is_refused(master):
    ran = CliRunner().invoke(pipeline, ["lag", "g", "--master", master])
    assert ran.exit_code == 2
    assert "is not a Spark master: use local, local[N]" in " ".join(ran.output.split())


NOWHERE = "127.0.0.1:1"
FILE = """
[pipeline]
name = "p"
trigger = "batch"
[source.s]
topic = "t"
"kafka.bootstrap.servers" = "NOWHERE"
LIMIT
[sink]
kind = "console"
""".replace("NOWHERE", NOWHERE)


@pytest.fixture
def started(monkeypatch):
    """Return a list to which a pipeline's name is added when a command starts the pipeline. Spark does not start.

    Commands try each broker only once.
    """
    names: list[str] = []

    def execute(name: str, *_: object, **__: object) -> Summary:
        names.append(name)
        return Summary(name)

    monkeypatch.setattr(context, "execute", execute)
    monkeypatch.setattr(retries, "UNREACHABLE_MS", 0)
    return names


@pytest.mark.parametrize(
    "words",
    [
        "archive t --to {}/a -b NOWHERE",
        "restore t --from {} -b NOWHERE",
        "window t -b NOWHERE",
        "lag g -b NOWHERE",
        "check --replicas {} --history topic:h -b NOWHERE",
        "run {}/file.toml",
        "copy t --to u --checkpoint {}/c --from-bootstrap NOWHERE --to-bootstrap 127.0.0.1:2",
    ],
    ids=lambda words: words.split()[0],
)
def test_pipeline_command_fails_before_it_starts_spark_if_no_broker_answers(
    started, tmp_path, words
):
    (tmp_path / "file.toml").write_text(FILE.replace("LIMIT", ""))
    arguments = words.replace("NOWHERE", NOWHERE).replace("{}", str(tmp_path)).split()
    with pytest.raises(
        MinikafkaError, match=r"no broker answers at 127\.0\.0\.1:1 .*is the cluster up"
    ):
        CliRunner().invoke(pipeline, arguments, catch_exceptions=False)
    assert (started, [path.name for path in tmp_path.iterdir()]) == ([], ["file.toml"])


@pytest.mark.parametrize(
    "words",
    [
        "archive evnts --to {}/a -b h:1",
        "window evnts -b h:1",
        "check --replicas {} --reads topic:evnts -b h:1",
        "run {}/file.toml",
        "copy evnts --to u --checkpoint {}/c -b h:1",
        "restore x --to evnts --from {} -b h:1",
    ],
    ids=lambda words: words.split()[0],
)
def test_pipeline_command_fails_before_it_starts_spark_if_a_topic_does_not_exist(
    started, stub, tmp_path, words
):
    stub.create("events", [1])
    file = FILE.replace("LIMIT", "").replace('topic = "t"', 'topic = "evnts"')
    (tmp_path / "file.toml").write_text(file)
    with pytest.raises(MinikafkaError, match="evnts: no such topic") as caught:
        CliRunner().invoke(
            pipeline, words.replace("{}", str(tmp_path)).split(), catch_exceptions=False
        )
    assert caught.value.hint == "did you mean events?"
    assert started == []


def test_copy_of_a_topic_to_itself_by_another_address_of_the_cluster_is_refused(started, stub):
    stub.create("events", [1])
    words = [
        "copy",
        "events",
        "--to",
        "events",
        "--checkpoint",
        "c",
        "--from-bootstrap",
        "h:1",
        "--to-bootstrap",
        "h:2",
    ]
    ended = CliRunner().invoke(pipeline, words)
    assert (ended.exit_code, started) == (2, [])
    assert "h:1 and h:2 are one cluster: events would be copied to itself" in ended.stderr


def test_restore_from_a_directory_without_an_archive_fails_before_it_starts_spark(
    started, stub, tmp_path
):
    stub.create("events", [1])
    words = ["restore", "events", "--from", str(tmp_path), "-b", "h:1"]
    with pytest.raises(MinikafkaError, match="is no archive"):
        CliRunner().invoke(pipeline, words, catch_exceptions=False)
    assert started == []


def test_pipeline_that_sets_an_api_timeout_starts_although_no_broker_answers(started, tmp_path):
    file = tmp_path / "file.toml"
    file.write_text(FILE.replace("LIMIT", '"kafka.default.api.timeout.ms" = 300000'))
    assert CliRunner().invoke(pipeline, ["run", str(file)]).exit_code == 0
    assert started == ["p"]


def test_help_of_every_command_loads_no_spark():
    program = (
        "import sys; from click.testing import CliRunner\n"
        "from minikafka.tools.cli.lazy import import_lazily; import_lazily()\n"
        "from minikafka.tools.cli.pipeline import pipeline\n"
        "for name in ['', *pipeline.list_commands(None)]:\n"
        "    assert CliRunner().invoke(pipeline, [*filter(None, [name]), '--help']).exit_code == 0\n"
        "print([one for one in ('pyspark', 'numpy', 'pyarrow', 'rich.console') if one in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize("address", ["http://h:1", "h:", "h:99999", ""])
def test_address_of_metrics_that_is_none_is_a_usage_error(address):
    words = ["copy", "a", "--to", "b", "--checkpoint", "c", "--metrics", address]
    result = CliRunner().invoke(pipeline, words)
    assert result.exit_code == 2
    assert "must be PORT or HOST:PORT" in result.output
