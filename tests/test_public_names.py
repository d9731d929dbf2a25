"""README.md lists the public names, each can be imported, and no document promises another one."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

from minikafka import LocalCluster
from minikafka.base.config.broker import BrokerConfig
from minikafka.base.config.cluster import ClusterConfig
from minikafka.base.config.topic import TopicConfig
from minikafka.testing import Minikafka

ROOT = Path(__file__).parent.parent
FOR_CONTRIBUTORS = {"architecture.md", "contributing.md", "extending.md"}
"""Pages that also show paths inside the rooms, which may change."""
GENERATED = {"configuration.md", "conformance.md"}
KEYS = {**BrokerConfig.keys(), **ClusterConfig.keys(), **TopicConfig.keys()}
NO_PATHS = re.compile(r"minikafka\.(errors\.[\w.]+|fish|records)$")
"""Headers of records, the name of a file, and the name of a table."""
OF_FIXTURE = {f"minikafka.{name}" for kit in (Minikafka, LocalCluster) for name in dir(kit)}
"""Methods of the fixture `minikafka`, which has the name of the package."""
PATH = re.compile(r"\bminikafka(?:\.\w+)+(?![\w/-])")
IMPORT = re.compile(r"\bfrom (minikafka[\w.]*) import (\([^)]*\)|[\w, ]+)")


def public_names() -> list[str]:
    """Return the names in the first column of the table in README.md."""
    section = (ROOT / "README.md").read_text().partition("\n## Public names\n")[2]
    rows = re.findall(r"^\| (`.*?) \|", section.partition("\n## ")[0], re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`([\w.]+)`", row)]


def paths_of(page: Path) -> set[str]:
    """Return the paths of modules, classes and functions that a page shows."""
    text = page.read_text()
    shown = {
        f"{module}.{name}"
        for module, names in IMPORT.findall(text)
        for name in re.findall(r"\w+", names)
    }
    named = {path for path in PATH.findall(text) if not NO_PATHS.match(path)} - OF_FIXTURE
    modules = {module for module, _ in IMPORT.findall(text)}
    return shown | (named - modules - KEYS.keys())


PAGES = sorted(
    page
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    if page.name not in GENERATED
)


def run_python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a new process."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def imported(path: str) -> subprocess.CompletedProcess[str]:
    """Import a module, or a name in it, in a new process."""
    return run_python("import pkgutil, sys; pkgutil.resolve_name(sys.argv[1])", path)


IMPORT_EACH = """
import os, pkgutil, sys
for path in sys.argv[1:]:
    if os.fork() == 0:
        pkgutil.resolve_name(path)
        os._exit(0)
    if os.wait()[1]:
        sys.exit(f"{path} cannot be imported on its own")
"""


def test_public_name_is_imported_by_a_new_process():
    result = run_python(IMPORT_EACH, *public_names())
    assert result.returncode == 0, result.stderr


def test_public_names_are_these():
    assert sorted(public_names()) == [
        "minikafka.ClusterError",
        "minikafka.FaultMissed",
        "minikafka.LocalCluster",
        "minikafka.broker.ledger.reader.read_all",
        "minikafka.client",
        "minikafka.client.history.History",
        "minikafka.client.isolation.events.Recorder",
        "minikafka.client.isolation.events.parse",
        "minikafka.client.isolation.logs.stored",
        "minikafka.client.isolation.verdict.check",
        "minikafka.history",
        "minikafka.pytest",
        "minikafka.simulation.MemoryCluster",
        "minikafka.simulation.run_seeded",
        "minikafka.spark.append_to_topics",
        "minikafka.spark.daemon",
        "minikafka.spark.lakehouse.programs.append_to_table",
        "minikafka.spark.progress.OffsetsBehindListener",
        "minikafka.spark.progress.ReadCosts",
        "minikafka.spark.register",
        "minikafka.spark.registry.decoded",
        "minikafka.spark.registry.encoded",
        "minikafka.spark.session.session",
        "minikafka.testing.AsyncMinikafka",
        "minikafka.testing.Minikafka",
    ]


def test_minikafka_client_has_every_name_that_it_lists():
    import minikafka.client

    assert {"Admin", "Client", "NewTopic", "Record"} < set(minikafka.client.__all__)
    assert [name for name in minikafka.client.__all__ if not hasattr(minikafka.client, name)] == []


def test_command_and_data_source_are_found_by_their_names():
    [command] = importlib.metadata.entry_points(group="console_scripts", name="minikafka")
    assert command.value == "minikafka.__main__:run"
    # In this process, the import would change the handling of SIGINT, and make later imports lazy.
    for name in (command.value, "pyspark_minikafka:DefaultSource"):
        result = imported(name)
        assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name not in FOR_CONTRIBUTORS],
    ids=lambda page: page.name,
)
def test_page_for_users_shows_only_public_names(page: Path):
    public = set(public_names())
    modules = {name.rpartition(".")[0] for name in public} | {"minikafka.client.isolation"}
    shown = paths_of(page) - public - modules
    assert {path for path in shown if path.rpartition(".")[0] != "minikafka.client"} == set()


def test_every_path_that_a_page_shows_can_be_imported():
    paths = sorted(set().union(*map(paths_of, PAGES)))
    assert {"minikafka.LocalCluster", "minikafka.client.Record"} < set(paths)
    program = "import pkgutil, sys; [pkgutil.resolve_name(path) for path in sys.argv[1:]]"
    result = run_python(program, *paths)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("`minikafka.a.b.C` and `minikafka.min`.", {"minikafka.a.b.C", "minikafka.min"}),
        ("from minikafka.a import (\n    B,\n    C,\n)", {"minikafka.a.B", "minikafka.a.C"}),
        ("# from minikafka.a import B, C", {"minikafka.a.B", "minikafka.a.C"}),
        ("`minikafka.coordination`, `minikafka.errors.topic`, `minikafka/a.py`", set()),
        ("from minikafka import register; register(x)", {"minikafka.register"}),
        ("minikafka.kill(1); minikafka.topic()", set()),
    ],
)
def test_paths_are_found_in_the_text_of_a_page(tmp_path: Path, text: str, paths: set[str]):
    page = tmp_path / "page.md"
    page.write_text(text)
    assert paths_of(page) == paths
