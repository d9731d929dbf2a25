"""Checks of the source that no linter offers: sizes, module docstrings, up-to-date documentation and unused names."""

from __future__ import annotations

import ast
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from support import source_files
from support.source_files import (
    PACKAGE,
    ROOT,
    Function,
    files_below,
    functions_of,
    nodes_of,
    text_of,
    tree_of,
)

from minikafka.base.config import BrokerConfig, TopicConfig
from minikafka.base.config.cluster import ClusterConfig
from minikafka.base.config.keys import Key
from minikafka.base.errors import ErrorCode
from minikafka.broker.settings.dynamic_config import THROTTLES
from minikafka.kafka.wire.versions import NAMES, SERVED

SOURCES = [
    path for folder in ("minikafka", "scripts", "benchmarks") for path in files_below(ROOT / folder)
]
CITATION = re.compile(r"\b[A-Z]\d{1,2}\b|\btraps? \d+|§ ?\d[\d.]*")
FUNCTION_LINES_MAX = 60
MODULE_LINES_MAX = 600


def body_lines(function: Function) -> int:
    """Return the number of lines from the first statement after the docstring to the last statement."""
    body = function.body
    first = body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(body) > 1:
        first = body[1]
    return (body[-1].end_lineno or 0) - first.lineno + 1


def named(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


def test_no_function_is_longer_than_sixty_lines():
    """A function fits on one screen."""
    long = [
        f"{named(path, function)} {function.name}: {body_lines(function)}"
        for path in SOURCES
        for function in functions_of(path)
        if body_lines(function) > FUNCTION_LINES_MAX
    ]
    assert long == []


def test_no_module_is_longer_than_six_hundred_lines():
    """The outline of a module fits on one screen too.

    Comments and assertions do not count: reasons and checks next to a line make no module harder to read.
    """
    sizes = {path: code_lines(path) for path in SOURCES}
    assert [f"{path}: {size}" for path, size in sizes.items() if size > MODULE_LINES_MAX] == []


def code_lines(path: Path) -> int:
    """Return the number of lines of a module without comments and assertions."""
    lines = [line for line in text_of(path).splitlines() if not line.lstrip().startswith("#")]
    assertions = [node for node in nodes_of(path) if isinstance(node, ast.Assert)]
    return len(lines) - sum((node.end_lineno or 0) - node.lineno + 1 for node in assertions)


def test_every_module_has_a_docstring():
    """A reader learns what a module is for before reading it."""
    assert [path for path in SOURCES if not ast.get_docstring(tree_of(path))] == []


def test_tasks_are_created_in_one_module():
    """The exception of a task that nobody awaits would be lost."""
    makers = {"create_task", "ensure_future"}
    found = [
        named(path, node)
        for path in files_below(PACKAGE)
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute) and node.attr in makers
        if path not in (PACKAGE / "runtime" / "tasks.py", PACKAGE / "simulation" / "loop.py")
        if ast.unparse(node) != "group.create_task"  # allowed: a TaskGroup waits for its tasks
    ]
    assert found == []


def test_no_except_clause_catches_everything():
    """`except:` catches cancellation, and hides bugs."""
    found = [
        named(path, node)
        for path in SOURCES
        for node in nodes_of(path)
        if isinstance(node, ast.ExceptHandler) and node.type is None
    ]
    assert found == []


def test_every_error_code_is_used():
    """Readers would think that brokers return an unused code."""
    used = set(re.findall(r"ErrorCode\.([A-Z_]+)", "".join(map(text_of, files_below(PACKAGE)))))
    assert sorted({code.name for code in ErrorCode} - used) == []


def files_of_tests() -> list[Path]:
    return [path for path in files_below(ROOT / "tests") if path.name.startswith("test_")]


def keys() -> dict[str, Key]:
    """Return every key of docs/configuration.md. Broker keys from which a topic key inherits are left out."""
    topic = TopicConfig.keys()
    inherited = {name for key in topic.values() for name, _ in key.synonyms} - topic.keys()
    found = {**BrokerConfig.keys(), **ClusterConfig.keys(), **THROTTLES, **topic}
    return {name: key for name, key in found.items() if name not in inherited}


def test_every_config_key_is_used_in_the_code_unless_its_feature_is_missing():
    """A key that nothing reads would be accepted without an effect.

    A configuration key that no code reads would have no effect.
    """
    tables = [PACKAGE / "base" / "config" / name for name in ("broker.py", "topic.py")]
    text = "".join(text_of(path) for path in files_below(PACKAGE) if path not in tables)
    checked = {**BrokerConfig.keys(), **TopicConfig.keys()}
    unread = {
        name
        for name, key in keys().items()
        if name in checked and not re.search(rf"\.{key.attribute}\b", text)
    }
    own = {"log.dir", "listeners", "advertised.listeners", "listener.security.protocol.map"}
    own |= {
        "inter.broker.listener.name",
        "minikafka.control.listener",
        "security.inter.broker.protocol",
    }
    waiting = {name for name, key in keys().items() if key.waits_for and name in checked}
    assert unread - waiting - own - {"control.plane.listener.name"} == set()
    assert waiting <= unread, "this key has an effect now"


def test_every_config_key_has_a_test_of_its_effect_unless_its_feature_is_missing():
    """A key that is read may still have no effect."""
    sources = "".join(map(text_of, files_of_tests()))
    marks = re.findall(r"pytest\.mark\.key\(([^)]*)\)", sources)
    shown = set(re.findall(r'"([A-Za-z0-9.]+)"', "".join(marks)))

    assert sorted({name for name, key in keys().items() if not key.waits_for} - shown) == []
    assert sorted(shown - keys().keys()) == []


def test_every_config_key_has_a_description_that_ends_with_a_full_stop():
    """The page of keys consists of the descriptions."""
    for keys in (BrokerConfig.keys(), TopicConfig.keys(), ClusterConfig.keys()):
        assert [name for name, key in keys.items() if not key.doc.endswith(".")] == []


@cache
def generated_pages() -> dict[str, Callable[[], str]]:
    pages: dict[str, Callable[[], str]] = runpy.run_path(str(ROOT / "scripts/write_docs.py"))[
        "PAGES"
    ]
    return pages


@pytest.mark.parametrize(
    "page",
    [
        "checks.md",
        "clients.md",
        "configuration.md",
        "metrics.md",
        "protocol.md",
        "conformance.md",
        "spark-options.md",
        "testing.md",
    ],
)
def test_generated_pages_are_up_to_date(page):
    """A generated page that nobody writes again describes an earlier state of the code.

    If this test fails, run: .venv/bin/python scripts/write_docs.py
    """
    assert (ROOT / "docs" / page).read_text() == generated_pages()[page]()


def test_every_served_api_is_listed_with_its_number_on_the_protocol_page():
    """Users look up an API by name or number."""
    protocol = (ROOT / "docs" / "protocol.md").read_text()
    families = protocol[protocol.index("## `produce/") :]
    for api in SERVED:
        assert re.search(rf"\b{NAMES[api]} \(?(key )?{api}\b", families), NAMES[api]


def prose_of(path: Path) -> Iterator[str]:
    """Yield the texts of a source file that may contain ids such as R71: comments, docstrings and test names."""
    yield from source_files.prose_of(text_of(path))
    yield from map(str.upper, re.findall(r"\bdef test_([a-z]\d\d?)_", text_of(path)))


def ids_of(page: str) -> set[str]:
    """Return the ids in the first column of a page's tables."""
    return set(re.findall(r"^\| ([A-Z]\d+) \|", (ROOT / "docs" / page).read_text(), re.MULTILINE))


def test_every_cited_conformance_or_rule_id_is_defined_in_the_docs():
    """An id such as S56 is useless if nothing explains it."""
    known = ids_of("conformance.md") | ids_of("rules.md") | {"S3"}  # also the name of a store
    cited = {
        (str(path.relative_to(ROOT)), reference)
        for folder in ("minikafka", "tests")
        for path in files_below(ROOT / folder)
        for text in prose_of(path)
        for reference in CITATION.findall(text)
    }
    cited |= {
        (page.name, reference)
        for page in (ROOT / "docs").glob("*.md")
        for reference in re.findall(r"\b[R-T]\d{1,2}\b", page.read_text())
    }
    assert sorted((where, reference) for where, reference in cited if reference not in known) == []


def test_rules_page_names_existing_modules_and_shares_no_id_with_conformance_page():
    """An id means one thing."""
    rules = (ROOT / "docs" / "rules.md").read_text()
    modules = re.findall(r"`([a-z_/]+\.py)`", rules.replace("tests/test_tidy.py", ""))

    assert [name for name in modules if not (PACKAGE / name).exists() and "/" in name] == []
    assert ids_of("rules.md") & ids_of("conformance.md") == set()


def test_folders_of_unit_tests_are_folders_of_the_code():
    """The tests of a package are found by its path."""
    unit = ROOT / "tests" / "unit"
    folders = {path.parent.relative_to(unit) for path in unit.rglob("test_*.py")}
    strays = [
        str(folder)
        for folder in folders
        if not any((base / folder).is_dir() for base in (PACKAGE, ROOT))
    ]
    assert strays == []


@pytest.mark.row("N1")
def test_repository_has_the_files_that_its_design_names():
    """Scripts and readers rely on them."""
    parts = [
        "pyproject.toml",
        "minikafka",
        "cluster.toml",
        "scripts",
        "tests",
        "benchmarks",
        "README.md",
    ]
    assert [part for part in parts if not (ROOT / part).exists()] == []


@pytest.mark.row("N6")
def test_aiohttp_aiozk_msgpack_and_uvloop_are_required_and_imported():
    """The design names these libraries."""
    required = (ROOT / "pyproject.toml").read_text()
    imported = {
        name.split(".")[0]
        for path in SOURCES
        for node in nodes_of(path)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [a.name for a in node.names]
        )
    }
    assert {"aiohttp", "aiozk", "msgpack", "uvloop"} <= imported
    assert all(f'"{name}' in required for name in ("aiohttp", "aiozk", "msgpack", "uvloop"))
    assert '"pytest-asyncio' in required
    assert 'asyncio_mode = "auto"' in required


def test_shipped_cluster_file_is_valid():
    """`minikafka up` reads it."""
    config = ClusterConfig.parse((ROOT / "cluster.toml").read_text())

    assert config.brokers == 3
    assert config.broker["zookeeper.session.timeout.ms"] == 6000


@pytest.mark.parametrize("part", ["base", "spark", "tests"])
def test_lock_file_contains_no_url_and_no_pip_options(part: str):
    """A lock must work with every package index."""
    lock = (ROOT / "requirements" / f"{part}.lock").read_text()

    assert "://" not in lock
    assert not re.search(r"^\s*-", lock.replace("    --hash=", ""), re.MULTILINE)


def test_readme_names_existing_folders():
    """These lists are the map of a newcomer."""
    readme = (ROOT / "README.md").read_text()
    named_folders = re.findall(r"^\| `([a-z]+)/` ", readme, re.MULTILINE)

    assert len(named_folders) >= 4
    assert [name for name in named_folders if not (ROOT / name).is_dir()] == []


def python_examples() -> list[tuple[str, str, str]]:
    """Return (page, text before the example, example) for each Python example of the documents."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [
        (page.name, text[: found.start()], found[1])
        for page in pages
        for text in [page.read_text()]
        for found in re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    ]


def test_pages_with_python_examples_name_all_packages_to_install():
    """An example must run when copied."""
    missing = []
    for page, before, example in python_examples():
        imported = set(re.findall(r"^(?:from|import) (\w+)", example, re.MULTILINE))
        wanted = {name.replace("_", "-") for name in imported - sys.stdlib_module_names}
        if "minikafka.spark" in example:
            wanted.add("[spark]")
        if "LocalCluster" in example:
            wanted.add("pip install .")
        told = "".join(part for part in before.split("\n\n") if "pip install" in part)
        missing += [(page, name) for name in wanted - {"minikafka"} if name not in told]
    assert missing == []


def test_package_readme_lists_every_package():
    """These lists are the map of a newcomer."""
    readme = (PACKAGE / "README.md").read_text()
    packages = [path.parent.name for path in PACKAGE.glob("*/__init__.py")]

    assert [name for name in packages if not re.search(rf"`{name}(/|\.py)`", readme)] == []


def test_architecture_page_lists_every_package():
    """These lists are the map of a newcomer."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    table = page[page.index("## Rooms") : page.index("## Words")]
    listed = set(re.findall(r"^\| `([a-z_/]+)/` \|", table, re.MULTILINE))
    packages = {str(path.parent.relative_to(PACKAGE)) for path in PACKAGE.rglob("*/__init__.py")}

    assert listed == {package for package in packages if "/" not in package}


def test_every_rule_has_a_docstring_with_its_reason():
    """A reader decides by the reason whether a rule still applies."""
    pages = runpy.run_path(str(ROOT / "scripts" / "write_docs.py"))["PAGES"]

    assert re.findall(r"^\| `(test_\w+)` \|  \|$", pages["checks.md"](), re.MULTILINE) == []


def test_contributing_page_names_existing_tests():
    """A reader of the page looks for the test that it names."""
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "contributing.md").read_text()))
    tests = {
        name
        for path in files_of_tests()
        for name in re.findall(r"^(?:async )?def (test_\w+)", text_of(path), re.MULTILINE)
    }

    assert sorted(named - tests) == []
