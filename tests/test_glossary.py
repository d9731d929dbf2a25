"""The words of the code: each row of the glossary names what exists, and a public class has a name of its own."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.source_files import PACKAGE, ROOT, classes_of, code_of, files_below, text_of, tree_of

from minikafka.deciders.controller.machine import ControllerMachine
from minikafka.deciders.groups.coordinator import GroupCoordinator
from minikafka.deciders.leaders.machine import LeadersMachine
from minikafka.deciders.transactions.coordinator import TransactionCoordinator

MODULES = files_below(PACKAGE)
ROWS_MAX = 20
DECIDERS = ("controller", "leaders", "groups", "transactions")
SHARED = {
    "Context": "a word of the glossary: every decider has one",
    "Note": "a word of the glossary: two deciders write facts to the ledger",
    "Outcome": "a word of the glossary, and a name that users import from minikafka.client",
    "ConfigSource": "Kafka's numbers in DescribeConfigs, which the broker writes and the client reads",
    "OffsetAndMetadata": "Kafka's name of a committed offset, in its client and in its coordinator",
    "ResourceType": "Kafka's numbers in requests about settings, which the client writes and the broker reads",
}
"""Names of several public classes, with the reason."""
RETIRED = re.compile(r"outbox|dialect|picture", re.IGNORECASE)
RETIRED_IN_DECIDERS = re.compile(r"effects?(?![a-z])", re.IGNORECASE)
"""A decider returns commands. Elsewhere, `effect` is a kind of ledger lines and a field of changes of settings."""
CHARTS = PACKAGE / "spark" / "pipelines"
"""Pipelines draw pictures."""
FILES_NAMED_TRANSACTIONS_MAX = 3


def glossary() -> list[tuple[str, list[str], list[str]]]:
    """Return the word, the names and the files of each row of the table of words."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    [section] = re.findall(r"(?ms)^## Words\n(.*?)^## ", page)
    rows = re.findall(r"(?m)^\| ([^|]+) \| [^|]+ \| ([^|]+) \|$", section)[1:]
    return [
        (word, re.findall(r"`(\w+)`", where), re.findall(r"`([\w/]+\.py)`", where))
        for word, where in rows
    ]


def defined_in(path: Path) -> set[str]:
    """Return the names that a module defines, without those that it imports."""
    names: set[str] = set()
    for node in tree_of(path).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def public_classes() -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        for node in classes_of(path):
            if not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(PACKAGE)))
    return found


def identifiers(path: Path) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(code_of(text_of(path)).split("\n"), 1):
        yield from ((number, name) for name in re.findall(r"[^\W\d]\w*", line))


def test_glossary_has_at_most_twenty_different_words():
    """A newcomer can learn them."""
    words = [word for word, _, _ in glossary()]
    assert 10 < len(words) <= ROWS_MAX
    assert len(set(words)) == len(words)


@pytest.mark.parametrize(("word", "names", "files"), glossary())
def test_each_word_names_a_class_or_function_where_it_is(
    word: str, names: list[str], files: list[str]
) -> None:
    """A word of the glossary is found in the code."""
    [name] = names
    # A file without a folder is a file of each decider.
    paths = [
        PACKAGE / path
        for file in files
        for path in (
            [file] if "/" in file else [f"deciders/{decider}/{file}" for decider in DECIDERS]
        )
    ]
    assert paths
    assert [path for path in paths if name not in defined_in(path)] == []


def test_public_classes_have_names_of_their_own():
    """Readers confuse two classes with the same name."""
    several = {name: files for name, files in public_classes().items() if len(files) > 1}
    assert {name: files for name, files in several.items() if name not in SHARED} == {}
    assert sorted(SHARED.keys() - several.keys()) == [], "these are exceptions no longer"


def test_few_files_are_named_transactions():
    """Readers confuse files with the same name."""
    names = Counter(path.name for path in MODULES)
    assert names["transactions.py"] <= FILES_NAMED_TRANSACTIONS_MAX


def test_no_identifier_or_module_has_a_retired_word():
    """A word that was replaced would return, and one thing would have two words again."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in MODULES
        if CHARTS not in path.parents
        for line, name in [(0, path.stem), *identifiers(path)]
        if RETIRED.search(name)
        or (path.relative_to(PACKAGE).parts[0] == "deciders" and RETIRED_IN_DECIDERS.search(name))
    ]
    assert found == []


@pytest.mark.parametrize(
    "decider", [ControllerMachine, LeadersMachine, GroupCoordinator, TransactionCoordinator]
)
def test_each_decider_handles_an_event_at_a_time(decider: type) -> None:
    """Hosts and tests call all four deciders in the same way."""
    parameters = inspect.signature(decider.handle).parameters.values()  # type: ignore[attr-defined]
    needed = [one.name for one in parameters if one.default is inspect.Parameter.empty]
    assert needed == ["self", "event", "now"]


@pytest.mark.parametrize("decider", DECIDERS)
def test_each_decider_has_the_same_four_modules(decider: str) -> None:
    """A reader who knows one decider can find each part of the others."""
    folder = PACKAGE / "deciders" / decider
    for module, name in (
        ("context", "Context"),
        ("events", "Event"),
        ("commands", "Command"),
        ("states", "LEGAL_FROM"),
    ):
        assert name in defined_in(folder / f"{module}.py")
