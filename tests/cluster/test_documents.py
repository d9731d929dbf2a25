"""The Python snippets of the documents run as printed, and the log files of a cluster have the documented content."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
from inspect import isfunction, signature
from pathlib import Path

import pytest
from confluent_kafka import Producer
from support.commands.commands import ENVIRONMENT, call

from minikafka import LocalCluster
from minikafka.tools.cluster.local import LOCAL_KEYS, BlockingCluster

ROOT = Path(__file__).parents[2]
EXPECTED = {
    "README.md": r"the leader is now broker [123]",
    "docs/groups.md": r"orders 0 0 b'one'\norders 0 1 b'two'\n"
    r"\{TopicPartition\(topic='orders', partition=0\): OffsetAndMetadata\(offset=2, .*\)\}",
    "docs/testing.md": r"\[b'before', b'after'\]\n1",
}


def snippets(page: str) -> list[str]:
    """Return the Python snippets of a page that are complete programs."""
    found = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE
    )
    return [text for text in found if "print(" in text]


def shell_blocks(page: str) -> list[str]:
    """Return the shell commands of a page, one text for each block."""
    return re.findall(r"^```sh\n(.*?)^```$", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", EXPECTED)
def test_snippets_of_the_documents_run_as_printed(page: str, tmp_path: Path) -> None:
    programs = snippets(page)
    assert programs
    output = ""
    for text in programs:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", text],
            cwd=tmp_path,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        output += done.stdout
    assert re.fullmatch(EXPECTED[page], output.strip()), output


FAILING = """
import os, threading

def test_of_another_thread(cluster):
    cluster.kill(2)
    thread = threading.Thread(target=cluster.start)
    thread.start()
    thread.join()
    while os.path.exists(f"/proc/self/task/{thread.native_id}"):
        pass  # `join` returns slightly before the thread has ended
    cluster.wait_until_in_sync()
    assert sorted(cluster.state().answers) == [1, 2, 3]

def test_that_fails(cluster):
    cluster.stop(3)
    assert "the cluster" == "as wanted"

def test_that_passes(cluster):
    cluster.start()
"""


def test_failed_test_with_the_documented_fixture_shows_its_broker_logs(tmp_path: Path) -> None:
    [conftest] = re.findall(
        r"^```python\n([^`]*?pytest_plugins[^`]*?)^```$",
        (ROOT / "docs/testing.md").read_text(),
        re.MULTILINE,
    )
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_it.py").write_text(FAILING)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:asyncio",
            "-p",
            "no:cacheprovider",
            "--rootdir=.",
        ],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    _, *parts = re.split(
        r"^-* ?log of broker (\d) during the test \((.*)\).*\n", done.stdout, flags=re.MULTILINE
    )
    assert parts[::3] == ["1", "2", "3"], done.stdout
    assert "broker 3 has stopped" in parts[8]
    assert "serves on" not in done.stdout  # the brokers started before this test
    kept = [Path(path) for path in parts[1::3]]
    assert f"cluster are in {kept[0].parent}\n" in done.stdout
    assert kept[2].read_text().count("broker 3 serves on") == 2
    assert [path.name for path in kept[0].parents[1].iterdir()] == ["logs"]
    shutil.rmtree(kept[0].parents[1])


def test_commands_of_the_readme_run_in_order_without_waiting(tmp_path: Path) -> None:
    [block] = [text for text in shell_blocks("README.md") if "minikafka up" in text]
    (tmp_path / "cluster.toml").write_text("[cluster]\nport = 0\n")
    commands = block.replace(". .venv/bin/activate\n", "")
    assert commands.splitlines()[-1].startswith("minikafka down")
    done = subprocess.run(
        ["bash", "-e", "-c", commands],
        cwd=tmp_path,
        env={**ENVIRONMENT, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for words in (
        "hello",
        "Reassignment of partition events-0 is completed.",
        "nothing is wrong with events-0",
        "group shop: Empty",
    ):
        assert words in done.stdout, done.stdout
    assert "broker 1 serves on" in done.stderr


def test_readme_names_missing_features_and_the_log_directory() -> None:
    text = (ROOT / "README.md").read_text()
    assert "## What is not here yet" in text
    for words in (
        "Transactions",
        "data/logs/",
        "pip install '.[spark]'",
    ):
        assert words in text


def test_testing_page_lists_arguments_settings_and_methods_of_local_cluster() -> None:
    page = (ROOT / "docs" / "testing.md").read_text()
    arguments = LocalCluster.__init__.__annotations__.keys() - {"return"}
    assert [name for name in arguments if f"| `{name}` |" not in page] == []
    defaults = page[page.index("## Settings of the brokers") : page.index("## Methods")]
    rows = dict(re.findall(r"^\| `([a-z.]+)` \| (\d+) \|", defaults, re.MULTILINE))
    assert rows == {key: str(value) for key, value in LOCAL_KEYS.items()}
    assert all(f"{key}={value}" in str(LocalCluster.__doc__) for key, value in rows.items())
    table = page[page.index("## Methods") : page.index("## Errors")]
    named = set(re.findall(r"^\| `(\w+)", table, re.MULTILINE))
    assert [name for name in named if not hasattr(LocalCluster, name)] == []
    blocking = {name for name in vars(BlockingCluster) if not name.startswith("_")}
    assert blocking - named == {"open", "close", "record", "directory"}


@pytest.mark.parametrize(
    "name", [name for name, found in vars(BlockingCluster).items() if isfunction(found)]
)
def test_blocking_cluster_method_has_the_parameters_of_the_coroutine(name: str) -> None:
    if name.startswith("_") or name in ("open", "close"):
        return
    coroutine = signature(getattr(LocalCluster, name)).parameters
    blocking = signature(getattr(BlockingCluster, name)).parameters
    assert [*blocking] == [*coroutine]


@pytest.fixture(scope="module")
def failed_block(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RuntimeError]:
    """Return the data directory of a cluster, and the exception that its `with` block raised after a broker died."""
    data = tmp_path_factory.mktemp("failed")
    with pytest.raises(RuntimeError, match="of the test") as caught:
        _fail_after_a_death(data)
    assert not LocalCluster(data=data).is_running()
    return data, caught.value


def _fail_after_a_death(data: Path) -> None:
    config = {"zookeeper.session.timeout.ms": 4_000, "default.replication.factor": 3}
    with LocalCluster(brokers=3, data=data, config=config) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        producer.produce("events", b"v")
        assert producer.flush(60) == 0
        leader = cluster.leader_of("events", 0)
        cluster.kill(leader)
        producer.produce("events", b"w")
        assert producer.flush(60) == 0
        deadline = time.monotonic() + 60
        while f"broker {leader} died: session expired" not in logs(data):
            assert time.monotonic() < deadline, logs(data)
            time.sleep(0.05)  # a file has no change notification
        raise RuntimeError("of the test")


def logs(data: Path) -> str:
    return "".join(file.read_text() for file in (data / "logs").iterdir())


def test_log_warns_that_a_broker_died_because_its_session_expired(
    failed_block: tuple[Path, RuntimeError],
) -> None:
    data, _ = failed_block
    text = logs(data)
    assert re.search(r" WARNING minikafka\S+: broker [123] died: session expired", text)
    assert "unclean stop" not in text
    assert "has no logs yet" in text


async def test_trace_tells_a_failover_in_one_sentence(
    failed_block: tuple[Path, RuntimeError],
) -> None:
    data, _ = failed_block
    shown = await call("trace", "events-0", "--data", str(data))
    assert shown.code == 0, shown.err
    assert re.search(
        r"broker [123] (probably died at \d\d:\d\d:\d\d\.\d{3}: connection to 127\.0\.0\.1:\d+ refused|"
        r"became the controller of epoch 2; broker [123] refused a connection).*; "
        r"controller [123] elected leader [123] from the ISR, which is [123],[123] now; "
        r"clients could write again after \d+(\.\d)? m?s\n",
        shown.out,
    ), shown.out
    details = await call("trace", "events-0", "--data", str(data), "-v")
    assert "events-0 (leader " in details.out
    assert "zxid" in details.out
    assert "zxid" not in shown.out


def test_zookeeper_log_has_no_slf4j_warnings(
    failed_block: tuple[Path, RuntimeError],
) -> None:
    data, _ = failed_block
    assert "SLF4J" not in (data / "logs" / "zookeeper.log").read_text()


def test_exception_in_a_cluster_with_block_has_the_last_lines_of_each_broker_log(
    failed_block: tuple[Path, RuntimeError],
) -> None:
    data, error = failed_block
    notes = error.__notes__
    assert [note.splitlines()[0] for note in notes] == [
        f"last lines of broker {id_} ({data}/logs/broker-{id_}.log):" for id_ in (1, 2, 3)
    ]
    for id_, note in zip((1, 2, 3), notes, strict=True):
        log = (data / "logs" / f"broker-{id_}.log").read_text()
        lines = textwrap.dedent(note.partition("\n")[2])
        assert lines.count("\n") > 2
        assert lines in log
