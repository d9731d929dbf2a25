"""The plugin in real runs of pytest. No broker runs: the tests write the logs themselves."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import minikafka.pytest as plugin

ROOT = Path(__file__).parents[2]

CONFTEST = """
import pytest
from minikafka import LocalCluster
from minikafka.tools.cluster import lifecycle
from minikafka.tools.cluster.directory import BrokerRecord, ClusterRecord

pytest_plugins = ["minikafka.pytest"]


@pytest.fixture(scope="session")
def log(tmp_path_factory):
    cluster = LocalCluster(2, data=tmp_path_factory.mktemp("data"))
    brokers = tuple(BrokerRecord(id_, id_, id_ + 10) for id_ in (1, 2))
    cluster.directory.write(ClusterRecord(brokers, "host:1"))
    cluster.directory.output("zookeeper").touch()
    cluster.directory.output("broker-2").touch()
    lifecycle._started.add(cluster)
    with cluster.directory.output("broker-1").open("a", buffering=1) as file:
        yield lambda text: print(text, file=file)
    lifecycle._started.discard(cluster)
"""
TESTS = """
import pytest

@pytest.fixture
def ends_badly(log):
    yield
    log("while the fixture ends")
    raise RuntimeError("at the end")

@pytest.fixture
def begins_badly(log):
    log("while the fixture begins")
    raise RuntimeError("at the beginning")

def test_passes(log):
    log("of the test that passes")

def test_fails_twice(log, ends_badly):
    log("while the test runs")
    assert not log

def test_does_not_begin(begins_badly):
    pass

def test_writes_much(log):
    for number in range(203):
        log(f"line {number}")
    assert not log

@pytest.mark.xfail
def test_is_expected_to_fail(log):
    log("of the expected failure")
    assert not log
"""


def run(directory: Path, *options: str) -> str:
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "no:asyncio", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--rootdir=.", "--tb=line", "-rN", *options],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout


def sections_of(output: str) -> list[tuple[str, str]]:
    """Return the name of the process and the text of each section with a log."""
    _, *parts = re.split(r"^-* ?log of (.*) during the test \(.*\).*\n", output, flags=re.MULTILINE)
    texts = [
        re.split(r"^(?:_{2}|={2}|minikafka:)", text, flags=re.MULTILINE)[0] for text in parts[1::2]
    ]
    return [(name, text.strip()) for name, text in zip(parts[::2], texts, strict=True)]


def test_each_failed_phase_of_a_test_shows_the_lines_that_it_has_logged(tmp_path: Path) -> None:
    output = run(tmp_path, "--tb=short")
    sections = sections_of(output)
    texts = [text for name, text in sections if name == "broker 1"]
    assert len(texts) == 4, output
    # pytest shows errors of fixtures before failures of tests.
    assert texts[:3] == [
        "while the fixture ends",
        "while the fixture begins",
        "while the test runs",
    ]
    much = texts[3].splitlines()
    assert (much[0], much[1], much[-1], len(much)) == ("… 3 more lines", "line 3", "line 202", 201)
    assert [text for name, text in sections if name == "broker 2"] == ["no new lines"] * 4
    assert not any(name == "ZooKeeper" for name, _ in sections)


def test_place_of_the_logs_is_printed_once_also_with_several_processes(tmp_path: Path) -> None:
    [place] = re.findall(r"^minikafka: .* are in (.*)$", run(tmp_path, "-n1"), re.MULTILINE)
    assert Path(place, "broker-1.log").is_file()


def test_plugin_imports_only_pytest_and_the_standard_library() -> None:
    code = (
        "import pytest, sys; before = set(sys.modules); import minikafka.pytest; "
        "print(*(name for name in set(sys.modules) - before if name.partition('.')[0] not in sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {"minikafka", "minikafka.pytest"}


def test_plugin_is_an_entry_point_with_the_name_of_its_module() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"minikafka.pytest": "minikafka.pytest"}


class StubConfig:
    """The options of a run of pytest; those that are not given have no value, and ini keys their defaults."""

    def __init__(self, **options: object) -> None:
        self.stash = pytest.Stash()
        self._options = options

    def getoption(self, name: str) -> object:
        return self._options.get(name, [] if name == "minikafka_setting" else None)

    def getini(self, name: str) -> object:
        if name == "minikafka_settings":
            return []
        return {"minikafka_brokers": 3, "minikafka_coordination": "controller"}.get(name, "")


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("brokers", "0", "--minikafka-brokers must be a number from 1, not '0'"),
        ("brokers", "many", "--minikafka-brokers must be a number from 1, not 'many'"),
        ("coordination", "kraft", "must be controller or leaders, not 'kraft'"),
        ("setting", ["no-value"], "--minikafka-setting must be KEY=VALUE, not 'no-value'"),
        ("external", "host", "--minikafka-external must be HOST:PORT, not 'host'"),
    ],
)
def test_invalid_option_is_refused_before_any_test(option: str, value: object, text: str) -> None:
    with pytest.raises(pytest.UsageError, match=re.escape(text)):
        plugin.pytest_configure(StubConfig(**{f"minikafka_{option}": value}))  # type: ignore[arg-type]
    plugin.pytest_configure(StubConfig())  # type: ignore[arg-type]
