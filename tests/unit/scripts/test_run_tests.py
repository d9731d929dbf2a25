"""`scripts/test`: which tests its arguments name, what it installs for them, and how it ends."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from support.commands.script_project import make_project, mark_installed, processes_of, start

SCRIPT = Path(__file__).parents[3] / "scripts" / "run_tests.py"
FILES = [
    "test_tidy.py",
    "conformance/log/test_keys.py",
    "unit/storage/log/test_epochs.py",
    "unit/storage/log/segments/test_index.py",
    "unit/spark/test_daemon.py",
]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_tests", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RUN_TESTS = load()


@pytest.mark.parametrize(
    ("argument", "path"),
    [
        ("unit/storage/log", "unit/storage/log"),
        ("tests/unit/storage/log/", "unit/storage/log"),
        ("./tests/unit/storage/log", "unit/storage/log"),
        (str(SCRIPT.parents[1] / "tests/unit/storage/log"), "unit/storage/log"),
        ("storage/log", "unit/storage/log"),
        ("unit/log", "unit/storage/log"),
        ("unit/test_index.py", "unit/storage/log/segments/test_index.py"),
        ("test_epochs.py", "unit/storage/log/test_epochs.py"),
        ("log/test_epochs.py::test_one", "unit/storage/log/test_epochs.py::test_one"),
        ("test_tidy.py", "test_tidy.py"),
        ("tests", "."),
    ],
)
def test_path_is_found_by_its_end_or_by_some_of_its_folders_if_no_other_path_fits(argument, path):
    assert RUN_TESTS.resolve(argument, FILES) == path


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("log", "'log' names several paths. Name one: conformance/log, unit/storage/log"),
        (
            "unit/x/log",
            "'unit/x/log' names no folder or file of tests. Name one: conformance/log, ",
        ),
        ("test_epoch.py", "'test_epoch.py' names no .*unit/storage/log/test_epochs.py"),
        ("zzzzzzzz", "'zzzzzzzz' names no folder or file of tests. scripts/test --list names all"),
    ],
)
def test_path_that_is_unknown_or_ambiguous_is_refused_with_the_closest_paths(argument, message):
    with pytest.raises(RUN_TESTS.WrongArguments, match=message):
        RUN_TESTS.resolve(argument, FILES)


@pytest.mark.parametrize(
    ("path", "needs"),
    [
        ("unit/storage/log", set()),
        ("unit/storage/log/segments/test_index.py::test_one", set()),
        ("unit/spark", {"Spark"}),
        ("unit", {"Spark"}),
        (".", {"Spark"}),
    ],
)
def test_needs_of_a_path_are_those_of_all_folders_in_it(path, needs):
    assert RUN_TESTS.needs_of([path], FILES) == needs


def test_every_row_of_the_folders_has_tests_and_every_test_has_a_row():
    """`scripts/test` knows what a folder needs.

    If this test fails, mend tests/folders.toml.
    """
    rows, files = RUN_TESTS.folders(), RUN_TESTS.test_files()
    homes = {file: RUN_TESTS.row_of(file, rows) for file in files}

    assert sorted(rows.keys() - homes.values()) == []
    assert [file for file, row in homes.items() if row == "." and "/" in file] == []


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose tools print their names and arguments; its environment has only the parts of unit tests."""
    made = make_project(tmp_path, needs="unit")
    (made / "tests" / "unit" / "storage" / "log").mkdir(parents=True)
    (made / "tests" / "unit" / "storage" / "log" / "test_epochs.py").touch()
    (made / "tests" / "folders.toml").write_text('"." = { seconds = 5 }\n')
    binaries = made / ".venv" / "bin"
    for tool in ("python", "ruff", "lint-imports", "mypy"):
        (binaries / tool).write_text(f'#!/bin/sh\necho {tool} "$@"\n')
        (binaries / tool).chmod(0o755)
    return made


def run(project: Path, *arguments: str, **environment: str) -> tuple[int, list[str]]:
    """Run `scripts/test`; return its exit code and the lines that it and its tools print."""
    running = start([str(project / "scripts" / "test"), *arguments], project, **environment)
    output, _ = running.communicate(timeout=60)
    return running.returncode, output.decode().splitlines()


def test_folder_runs_only_its_tests_with_the_options_of_pytest(project):
    code, lines = run(project, "storage/log", "-k", "truncation")

    assert code == 0
    [line] = lines
    assert line.startswith("python -m pytest ")
    assert line.endswith(" tests/unit/storage/log -k truncation")


def test_unknown_folder_is_refused_before_anything_is_installed(project):
    (project / ".venv" / "minikafka.stamp").unlink()
    code, lines = run(project, "storag/log")

    assert code == 4
    assert lines == [
        "scripts/test: 'storag/log' names no folder or file of tests. Name one: unit/storage/log"
    ]


def test_all_checks_run_before_the_tests_and_the_first_failure_ends_them(project):
    mark_installed(project, "tests")
    code, lines = run(project, "--quick", "-x")
    assert code == 0
    assert [line.split()[0] for line in lines] == ["ruff", "ruff", "lint-imports", "mypy", "python"]
    assert lines[-1].endswith(
        " --ignore=tests/cluster --ignore=tests/clients --ignore=tests/spark -x"
    )

    (project / ".venv" / "bin" / "mypy").write_text("#!/bin/sh\nexit 1\n")
    code, lines = run(project)
    assert code == 1
    assert lines[-1] == "scripts/test: mypy failed: mend the types that it names"


def test_interrupt_during_a_check_ends_the_script_and_its_processes(project):
    mark_installed(project, "tests")
    (project / ".venv" / "bin" / "python").write_text(f"#!/bin/sh\nexec sleep 60 {project}\n")
    (project / ".venv" / "bin" / "mypy").write_text("#!/bin/sh\necho started >&2\nexec sleep 60\n")
    running = start([str(project / "scripts" / "test")], project)
    assert running.stdout is not None
    while running.stdout.readline().strip() != b"started":
        pass
    os.killpg(running.pid, signal.SIGINT)

    output, _ = running.communicate(timeout=30)
    assert running.returncode == 130
    assert b"Traceback" not in output
    assert processes_of(project) == []


def test_help_and_list_need_no_environment(project):
    (project / ".venv" / "minikafka.stamp").unlink()
    assert "scripts/test FOLDER" in "\n".join(run(project, "--help")[1])
    assert run(project, "--list")[1][1].split() == [".", "1", "5", "s"]


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("option", ["--help", "--list"])
def test_script_ends_by_sigpipe_without_a_message_when_nobody_reads_its_output(option, unbuffered):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        command = [sys.executable, str(SCRIPT), option]
        ended = subprocess.run(
            command, stdout=closed, stderr=subprocess.PIPE, env=environment, check=False
        )
    assert (ended.returncode, ended.stderr) == (-signal.SIGPIPE, b"")
