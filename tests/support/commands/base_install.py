"""A virtual environment with only the packages of `pip install .`, made of symbolic links to this environment."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tomllib
import venv
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
_OF_JAVA = {"JAVA_HOME", "SPARK_HOME", "ZOOKEEPER_JARS", "PYTHONPATH"}
"""Variables with which a process could find Java, its jars, or packages outside of the environment."""
_TOOLS = ("dirname", "sh")
"""Programs that the scripts need on PATH."""


def make_base_environment(directory: Path, *others: str) -> Path:
    """Create the environment in `directory`, and return its interpreter.

    `others`: names of further distributions. The extras of minikafka are missing.
    """
    venv.create(directory, symlinks=True)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = directory / "lib" / version / "site-packages"
    (packages / "minikafka").symlink_to(ROOT / "minikafka")
    for name in {"minikafka", *base_distributions(*others)}:
        for entry in _entries(name):
            (packages / entry.name).symlink_to(entry)
    for tool in _TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (directory / "bin" / tool).symlink_to(found)
    return directory / "bin" / "python"


def base_distributions(*others: str) -> set[str]:
    """Return the distributions that `pip install .` installs, and `others` with the distributions that they need."""
    found: set[str] = set()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    waiting = [*_names(project["dependencies"]), *others]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _names(metadata.requires(name) or [])
    return found


def without_java(python: Path, **more: str) -> dict[str, str]:
    """Return the environment variables of a process that can find neither Java nor other packages."""
    kept = {name: value for name, value in os.environ.items() if name not in _OF_JAVA}
    return {**kept, "PATH": str(python.parent), **more}


def _names(requirements: Iterable[str]) -> list[str]:
    """Return the names of the distributions that are required without an extra, on this system."""
    return [
        re.sub(r"[-_.]+", "-", requirement.name).lower()
        for requirement in map(Requirement, requirements)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    ]


def _entries(name: str) -> Iterator[Path]:
    """Yield the directories and files of a distribution in site-packages."""
    distribution = metadata.distribution(name)
    tops = {file.parts[0] for file in distribution.files or () if file.parts[0] != ".."}
    for top in tops - {"__pycache__"}:
        if not top.endswith(".pth"):
            yield Path(str(distribution.locate_file(top)))
