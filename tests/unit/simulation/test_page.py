"""The example of docs/simulation.md runs, and the page lists every module of the package."""

from __future__ import annotations

import re
from pathlib import Path

import minikafka.simulation

PAGE = Path(__file__).parents[3] / "docs" / "simulation.md"


def test_example_of_the_page_runs():
    [example] = re.findall(r"(?ms)^```python\n(.*?)^```", PAGE.read_text())
    exec(compile(example, str(PAGE), "exec"), {})


def test_page_lists_every_module():
    modules = {path.name for path in Path(minikafka.simulation.__path__[0]).glob("[!_]*.py")}
    table = PAGE.read_text().partition("## Parts")[2].partition("\n## ")[0]
    assert {*re.findall(r"`(\w+\.py)`", table)} == modules


def test_package_has_its_public_names_and_no_other():
    names = minikafka.simulation.__all__
    assert [getattr(minikafka.simulation, name).__name__ for name in names] == names
    assert not hasattr(minikafka.simulation, "no_such_name")
