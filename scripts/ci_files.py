"""The files for GitHub Actions and GitLab in docs/testing.md, and the commands that they run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import yaml

PAGE: Final = Path(__file__).parents[1] / "docs/testing.md"
GITHUB: Final = ".github/workflows/test.yml"
GITLAB: Final = ".gitlab-ci.yml"
_YAML: Final = re.compile(r"^```yaml\n# (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PYTHON: Final = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def ci_files() -> dict[str, str]:
    """Return the YAML files of the page by path."""
    return dict(_YAML.findall(PAGE.read_text()))


def tutorial_files() -> dict[str, str]:
    """Return the Python files of the page by name."""
    return dict(_PYTHON.findall(PAGE.read_text()))


def commands(path: str) -> list[str]:
    """Return the shell commands of a file, in order. Raises KeyError, TypeError and ValueError for another shape."""
    document: dict[Any, Any] = yaml.safe_load(ci_files()[path])
    if path == GITHUB:
        return [line for job in document["jobs"].values() for line in _of_github(job)]
    return [line for job in document.values() for line in job["script"]]


def _of_github(job: dict[str, Any]) -> list[str]:
    if not job["runs-on"]:
        raise ValueError("a job runs on no machine")
    for step in job["steps"]:
        if ("run" in step) == ("uses" in step):
            raise ValueError(f"a step has either `run` or `uses`: {step}")
    return [step["run"] for step in job["steps"] if "run" in step]
