"""The files for GitHub Actions and GitLab in docs/testing.md. `scripts/check-wheel` runs their commands."""

from __future__ import annotations

import pytest
import yaml

from scripts.ci_files import GITHUB, GITLAB, ci_files, commands, tutorial_files

EVENTS = {"push", "pull_request"}


def test_page_has_a_file_for_each_service_and_the_tests_that_they_run() -> None:
    assert set(ci_files()) == {GITHUB, GITLAB}
    assert {"orders.py", "test_orders.py"} <= set(tutorial_files())


@pytest.mark.parametrize("path", [GITHUB, GITLAB])
def test_file_installs_what_the_tests_need_and_runs_pytest(path: str) -> None:
    assert commands(path) == ["pip install -r requirements.txt", "pytest -n auto"]


def test_workflow_of_github_begins_with_events_and_checks_the_project_out() -> None:
    workflow = yaml.safe_load(ci_files()[GITHUB])
    assert set(workflow[True]) == EVENTS  # YAML 1.1 reads the word `on` as true
    [job] = workflow["jobs"].values()
    assert [step["uses"].partition("@")[0] for step in job["steps"] if "uses" in step] == [
        "actions/checkout",
        "actions/setup-python",
    ]
