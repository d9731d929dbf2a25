"""Runs kazoo's own tests, unmodified, against `minikafka zookeeper`.

    kazoo-suite [--sdist FILE] [-k EXPRESSION]

The source distribution of kazoo and the package objgraph, which one of its test modules imports, come from the package
index. `kazoo_stand_in.py` replaces kazoo's class that starts ZooKeeper from its jars. The exit code is 0 only if every
test passes but those in `EXPECTED`, and these fail. It takes about two minutes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from xml.etree import ElementTree

import endings

KAZOO = "kazoo==2.11.0"
OBJGRAPH = "objgraph==3.7.0"
SCRIPTS = Path(__file__).resolve().parent
VERSION = "3.9.5"
"""The version of ZooKeeper for which kazoo selects its tests."""
TEST_SECONDS = 120

LEFT_OUT: Mapping[str, str] = {
    "test_sasl.py": "SASL is not implemented, as without a login configuration of Apache's server",
    "test_eventlet_handler.py": "tests another handler of the client, and needs eventlet",
    "test_gevent_handler.py": "tests another handler of the client, and needs gevent",
}
_THREE_SERVERS = "needs an ensemble of three servers; ours is one"
_RECONFIG = "changes the members of an ensemble; a single server refuses that"
EXPECTED: Mapping[str, str] = {
    "test_client.TestClient.test_update_host_list": _THREE_SERVERS,
    "test_connection.TestReadOnlyMode.test_read_only": _THREE_SERVERS,
    "test_client.TestReconfig.test_add_remove_observer": _RECONFIG,
    "test_client.TestReconfig.test_bad_input": _RECONFIG,
    "test_client.TestReconfig.test_no_super_auth": _RECONFIG,
    "test_client.TestSSLClient.test_create": "needs a TLS port; ours has none",
}
"""The tests that fail, and why."""


class Outcomes(NamedTuple):
    """Names of tests, without `kazoo.tests.`."""

    passed: set[str]
    failed: set[str]
    skipped: set[str]


def main() -> bool:
    """Run the tests and print the verdict. Return True if only the expected ones fail."""
    parser = argparse.ArgumentParser(prog="kazoo-suite", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--sdist", type=Path, metavar="FILE", help=f"source distribution of {KAZOO}"
    )
    parser.add_argument(
        "-k", default="", metavar="EXPRESSION", help="tests to run, as in pytest (all)"
    )
    arguments = parser.parse_args(sys.argv[1:])
    with TemporaryDirectory(prefix="minikafka-kazoo-") as name:
        directory = Path(name)
        source = unpacked(directory, arguments.sdist)
        packages = directory / "packages"
        pip("install", "--no-deps", "--target", str(packages), OBJGRAPH)
        outcomes = run(source, packages, directory, arguments.k)
    return verdict(outcomes)


def pip(*arguments: str) -> None:
    """Run pip. Raises RuntimeError with the last lines that it printed."""
    ran = subprocess.run(
        [sys.executable, "-m", "pip", *arguments], capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise RuntimeError(f"pip {' '.join(arguments)} failed: {ran.stderr.strip()[-500:]}")


def unpacked(directory: Path, sdist: Path | None) -> Path:
    """Unpack the source distribution, downloaded unless it is given, and return the folder with kazoo's code."""
    if sdist is None:
        pip("download", "--no-deps", "--no-binary", ":all:", "--dest", str(directory), KAZOO)
        [sdist] = directory.glob("kazoo-*.tar.gz")
    shutil.unpack_archive(sdist, directory / "source")
    [source] = (directory / "source").iterdir()
    return source


def run(source: Path, packages: Path, directory: Path, selection: str) -> Outcomes:
    """Run the tests in the folder of the source, so that they import kazoo from it."""
    report = directory / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, f"--rootdir={source}"]
    command += ["-p", "kazoo_stand_in", "-p", "no:cacheprovider", "-W", "ignore", "--tb=short"]
    command += [f"--timeout={TEST_SECONDS}", f"--junitxml={report}", "-k", selection]
    command += [f"--ignore=kazoo/tests/{name}" for name in LEFT_OUT]
    path = os.pathsep.join((str(SCRIPTS), str(packages)))
    environment = {**os.environ, "PYTHONPATH": path, "ZOOKEEPER_VERSION": VERSION}
    subprocess.run([*command, "kazoo/tests"], cwd=source, env=environment, check=False)
    if not report.exists():
        raise RuntimeError("pytest has written no report")
    return read(report)


def read(report: Path) -> Outcomes:
    """Return the outcomes in a report of pytest (JUnit XML)."""
    outcomes = Outcomes(set(), set(), set())
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}".removeprefix("kazoo.tests.")
        if case.find("failure") is not None or case.find("error") is not None:
            outcomes.failed.add(name)
        elif case.find("skipped") is not None:
            outcomes.skipped.add(name)
        else:
            outcomes.passed.add(name)
    return outcomes


def verdict(outcomes: Outcomes) -> bool:
    """Print the counts, the expected failures with their reasons, and what was not expected. Return True if nothing."""
    passed, failed, skipped = outcomes
    print(f"{KAZOO}: {len(passed)} passed, {len(skipped)} skipped, {len(failed)} failed")
    for name, reason in EXPECTED.items():
        if name in failed:
            print(f"failed as expected: {name}: {reason}")
    problems = [f"failed: {name}" for name in sorted(failed - EXPECTED.keys())]
    problems += [
        f"passed, remove it from EXPECTED: {name}" for name in sorted(passed & EXPECTED.keys())
    ]
    problems += [] if passed else ["no test has passed"]
    print("\n".join(problems) or "every other test passed")
    return not problems


if __name__ == "__main__":
    endings.run("kazoo-suite", main)
