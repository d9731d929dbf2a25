"""The parts of the environment that `scripts/environment` installs."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "environment.py"


@pytest.fixture
def commands() -> list[list[str]]:
    """The commands that the environment has run."""
    return []


@pytest.fixture
def environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: list[list[str]]
) -> ModuleType:
    """The module of the script, for the project `tmp_path`. Its commands are recorded, and .venv appears at once."""
    spec = importlib.util.spec_from_file_location("environment", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def record(command: list[str], _: object) -> None:
        commands.append(command)
        module.PYTHON.parent.mkdir(parents=True, exist_ok=True)
        module.PYTHON.touch()

    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "ENVIRONMENT", tmp_path / ".venv")
    monkeypatch.setattr(module, "PYTHON", tmp_path / ".venv" / "bin" / "python")
    monkeypatch.setattr(module, "STAMP", tmp_path / ".venv" / "minikafka.stamp")
    monkeypatch.setattr(module, "LOCKS", [tmp_path / f"{part}.lock" for part in module.PARTS])
    monkeypatch.setattr(module, "_run", record)
    for name in ("pyproject.toml", *(file.name for file in module.LOCKS)):
        (tmp_path / name).write_text(name)
    return module


def installed_locks(commands: list[list[str]]) -> list[list[str]]:
    """Return the names of the lock files in each command that has some."""
    named = [
        [Path(word).name for word in command if word.endswith(".lock")] for command in commands
    ]
    return [names for names in named if names]


def creations(commands: list[list[str]]) -> int:
    return sum("venv" in command for command in commands)


def test_base_part_is_installed_without_spark_and_tools(
    environment: ModuleType, commands: list[list[str]]
) -> None:
    environment.make("base")

    assert installed_locks(commands) == [["base.lock"]]
    assert "--editable" in commands[-1]


def test_spark_is_added_to_the_base_part_without_a_new_environment(
    environment: ModuleType, commands: list[list[str]]
) -> None:
    environment.make("base")
    commands.clear()
    environment.make("spark")

    assert len(commands) == 1
    assert installed_locks(commands) == [["base.lock", "spark.lock"]]


def test_tools_of_unit_tests_are_installed_without_spark_which_can_follow(
    environment: ModuleType, commands: list[list[str]]
) -> None:
    environment.make("unit")
    assert installed_locks(commands) == [["base.lock", "tests.lock"]]

    commands.clear()
    environment.make("spark")
    assert installed_locks(commands) == [["base.lock", "spark.lock", "tests.lock"]]
    assert creations(commands) == 0


def test_program_that_needs_nothing_creates_no_environment(
    environment: ModuleType, commands: list[list[str]]
) -> None:
    environment.make("nothing")

    assert commands == []


@pytest.mark.parametrize("needs", ["base", "spark", "unit", "tests"])
def test_program_runs_no_command_when_its_part_is_installed(
    environment: ModuleType, commands: list[list[str]], needs: str
) -> None:
    environment.make("tests")
    commands.clear()
    environment.make(needs)

    assert commands == []


@pytest.mark.parametrize("name", ["pyproject.toml", "base.lock", "spark.lock", "tests.lock"])
def test_environment_is_recreated_when_an_input_changes(
    environment: ModuleType, commands: list[list[str]], tmp_path: Path, name: str
) -> None:
    environment.make("spark")
    (tmp_path / name).write_text("changed")
    environment.make("base")

    assert creations(commands) == 2
    assert installed_locks(commands)[-1] == ["base.lock"]


def test_failed_addition_of_spark_leaves_the_base_part_and_is_repeated(
    environment: ModuleType, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.make("base")
    record: Callable[..., None] = environment._run

    def fail(command: list[str], _: object) -> None:
        raise RuntimeError("no network")

    monkeypatch.setattr(environment, "_run", fail)
    with pytest.raises(RuntimeError, match="no network"):
        environment.make("spark")
    environment.make("base")
    monkeypatch.setattr(environment, "_run", record)
    commands.clear()
    environment.make("spark")

    assert creations(commands) == 0
    assert installed_locks(commands) == [["base.lock", "spark.lock"]]


def test_programs_that_use_the_support_of_tests_run_with_the_packages_of_tests() -> None:
    folder = SCRIPT.parent
    lacking = [
        f"{program} --needs {needs}"
        for launcher in folder.glob("[!.]*[!y]")
        if launcher.is_file()
        for needs, program in re.findall(r"--needs (\w+) (\w+\.py)", launcher.read_text())
        if needs != "tests"
        and re.search(r"^(from|import) support", (folder / program).read_text(), re.MULTILINE)
    ]
    assert lacking == []
