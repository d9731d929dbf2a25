"""Runs kafka-python's integration tests, unmodified, on a folder that `minikafka kafka-home` makes.

    kafka-python-suite CLONE [-k EXPRESSION]

CLONE is a clone of github.com/dpkp/kafka-python, because the source distribution lacks a part of the tests; they are
taken from the commit `COMMIT`. They start ZooKeeper and brokers by the scripts of a Kafka distribution, with files that
they make of templates, and wait for lines in the output. The exit code is 0 only if every test passes but those in
`EXPECTED`, and these fail. It takes about three minutes.
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

from minikafka.tools.cli.kafka_home.version import KAFKA_VERSION

COMMIT = "a3b3836ff3a4b34ebaa42fd93500bfcb16c1e9b7"
"""The development version after 3.0.12, of August 2026."""
TEST_SECONDS = 120
EXPECTED: Mapping[str, str] = {
    "test_admin_integration.test_describe_configs_broker_resource_returns_configs": "expects that "
    "advertised.listeners can be changed while the broker runs; minikafka cannot, and says so (read_only)",
}
"""The tests that fail, and why."""
JAVA_TOOLS = ("keytool", "openssl")
"""Programs with which the tests of SSL make certificates."""


class Outcomes(NamedTuple):
    """Names of tests, without `test.integration.`; the skipped ones with their reasons."""

    passed: set[str]
    failed: set[str]
    skipped: dict[str, str]


def main() -> bool:
    """Run the tests and print the verdict. Return True if only the expected ones fail."""
    parser = argparse.ArgumentParser(
        prog="kafka-python-suite", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("clone", type=Path, metavar="CLONE", help="clone of dpkp/kafka-python")
    parser.add_argument("-k", default="", metavar="EXPRESSION", help="tests to run, as in pytest")
    arguments = parser.parse_args(sys.argv[1:])
    with TemporaryDirectory(prefix="minikafka-kafka-python-") as name:
        directory = Path(name)
        outcomes = run(unpacked(directory, arguments.clone), directory, arguments.k)
    return verdict(outcomes)


def unpacked(directory: Path, clone: Path) -> Path:
    """Return a folder with the files of the commit. Raises RuntimeError if the clone does not have it."""
    packed = directory / "source.tar"
    command = ["git", "-C", str(clone), "archive", "--output", str(packed), COMMIT]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"{clone} has no commit {COMMIT[:8]}: {ran.stderr.strip()}")
    shutil.unpack_archive(packed, directory / "source")
    return directory / "source"


def run(source: Path, directory: Path, selection: str) -> Outcomes:
    """Run the tests in the folder of the source, so that they import kafka-python from it."""
    home, report = directory / "kafka", directory / "report.xml"
    made = [sys.executable, "-m", "minikafka", "kafka-home", str(home)]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, f"--rootdir={source}"]
    command += ["-p", "no:cacheprovider", "-W", "ignore", "--tb=short", "-o", "log_level=WARNING"]
    command += [f"--timeout={TEST_SECONDS}", f"--junitxml={report}", "-k", selection]
    if not all(map(shutil.which, JAVA_TOOLS)):
        command += ["--ignore=test/integration/test_ssl_integration.py"]
        print(f"tests of SSL are left out: they need {' and '.join(JAVA_TOOLS)}")
    environment = {**os.environ, "KAFKA_VERSION": KAFKA_VERSION, "KAFKA_ROOT": str(home)}
    subprocess.run([*command, "test/integration"], cwd=source, env=environment, check=False)
    if not report.exists():
        raise RuntimeError("pytest has written no report")
    return read(report)


def read(report: Path) -> Outcomes:
    """Return the outcomes in a report of pytest (JUnit XML)."""
    outcomes = Outcomes(set(), set(), {})
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}".removeprefix("test.integration.")
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            outcomes.failed.add(name)
        elif skip is not None:
            outcomes.skipped[name] = skip.get("message", "")
        else:
            outcomes.passed.add(name)
    return outcomes


def verdict(outcomes: Outcomes) -> bool:
    """Print the counts, the reasons, and what was not expected. Return True if nothing was."""
    passed, failed, skipped = outcomes
    print(
        f"kafka-python {COMMIT[:8]}: {len(passed)} passed, {len(skipped)} skipped, {len(failed)} failed"
    )
    for name, reason in sorted(skipped.items()):
        print(f"skipped: {name}: {reason}")
    for name in sorted(failed & EXPECTED.keys()):
        print(f"failed as expected: {name}: {EXPECTED[name]}")
    problems = [f"failed: {name}" for name in sorted(failed - EXPECTED.keys())]
    problems += [f"passed, remove it from EXPECTED: {n}" for n in sorted(passed & EXPECTED.keys())]
    problems += [] if passed else ["no test has passed"]
    print("\n".join(problems) or "every other test passed")
    return not problems


if __name__ == "__main__":
    endings.run("kafka-python-suite", main)
