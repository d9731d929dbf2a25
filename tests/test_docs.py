"""What documents, docstrings and comments name exists: paths, modules, classes, methods, and anchors of pages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import pytest
from support.source_files import ROOT, classes_of, files_below, prose_of, text_of

FOLDERS = ("minikafka", "tests", "scripts", "benchmarks")
PAGES = sorted(
    path
    for path in chain(
        ROOT.glob("*.md"), *((ROOT / folder).rglob("*.md") for folder in ("docs", *FOLDERS))
    )
)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([\w./#-]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FILE = re.compile(r"/?(?:[\w.-]+/)*\w+\.py")
FOLDER = re.compile(r"(?:[a-z][\w-]*/)+")
PACKAGE = re.compile(r"[a-z_]+(?:/[a-z_]+)+")
MODULE = re.compile(r"minikafka(?:\.\w+)+")
BARE_PATH = re.compile(r"(?<![\w./*<>{}$-])((?:[a-z_]+/)+[\w-]+\.(?:py|md|toml))(?:#([\w-]+))?\b")
NOTE = re.compile(r"\bnotes?, rows? \d+")
"""A reference to a row of a note. The notes are not in the repository."""
CLASS = re.compile(r"(?:[a-z_]+\.)*([a-z_]+)\.([A-Z]\w*)(?:\(.*\))?")
MEMBER = re.compile(r"([A-Z]\w*[a-z]\w*)\.([a-z_]\w*)(?:\(.*\))?")
ELSEWHERE = re.compile(
    r"(data|logs|transformations|zookeeper/data|bin/java)\b|(clicks\.py|log\.ZXID|snapshot\.ZXID)"
    r"|(pyspark|ssl|org|subprocess|launcher|minikafka\.errors)\.|(DataFrame|Observation)\."
    r"|(ConsumerCoordinator|RecordAccumulator|TransactionManager)\."
    r"|(reassignment\.A1|broker\.METHOD|headers\.SEGMENTS|clients\.Client)"
)
"""The start of what is not in the repository: files of a user or a cluster, and names of other libraries."""


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    headings = [heading.lower() for heading in HEADING.findall(page.read_text())]
    return {re.sub(r"[^\w -]", "", heading).replace(" ", "-") for heading in headings}


@cache
def paths() -> set[str]:
    """Return the ends of the paths of all files and folders of the repository. A folder ends with a slash."""
    found = set(ROOT.iterdir())
    for path in (path for folder in ("docs", *FOLDERS) for path in (ROOT / folder).rglob("*")):
        # Python leaves its caches behind where a folder has moved.
        if path.is_file() and path.suffix != ".pyc":
            found |= {path, *(folder for folder in path.parents if ROOT in folder.parents)}
    names = [f"{path.relative_to(ROOT)}{'/' * path.is_dir()}" for path in found]
    return {name[at + 1 :] for name in names for at in (-1, *slashes_of(name))}


def slashes_of(name: str) -> list[int]:
    return [at for at, character in enumerate(name[:-1]) if character == "/"]


@cache
def sources() -> dict[Path, str]:
    return {path: text_of(path) for folder in FOLDERS for path in files_below(ROOT / folder)}


@cache
def members(class_name: str) -> set[str]:
    """Return the members of all classes with this name. The names of base classes begin with `<`."""
    return {
        member
        for path, text in sources().items()
        if f"class {class_name}" in text
        for node in classes_of(path)
        if node.name == class_name
        for member in members_of(node)
    }


def members_of(node: ast.ClassDef) -> Iterator[str]:
    for base in node.bases:
        yield f"<{ast.unparse(base).rpartition('.')[2].split('[')[0]}"
    for child in ast.walk(node):
        match child:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=targets):
                yield from (one.id for one in targets if isinstance(one, ast.Name))


def has_member(class_name: str, member: str) -> bool:
    found = members(class_name)
    return member in found or any(has_member(one[1:], member) for one in found if one[0] == "<")


def has_class(module: str, name: str) -> bool:
    """True if the module defines the name or has it in `__all__`, or the package of this name exports it."""
    return any(
        re.search(rf"^(class )?{name}\b|^__all__ = .*\"{name}\"", text, re.MULTILINE)
        if path.stem == module
        else path.name == "__init__.py" and path.parent.name == module and name in text
        for path, text in sources().items()
    )


def has_module(dotted: str) -> bool:
    """True if a module or package has this name, or the name is one of its public names."""
    owner, _, name = dotted.rpartition(".")
    path = ROOT / owner.replace(".", "/")
    owners = [path.with_suffix(".py"), path / "__init__.py"]
    return bool(
        {f"{dotted.replace('.', '/')}/", f"{dotted.replace('.', '/')}.py"} & paths()
    ) or any(re.search(rf"\b{name}\b", one.read_text()) for one in owners if one.exists())


@cache
def keys() -> set[str]:
    """Return the names of all configuration keys."""
    return set(CODE.findall((ROOT / "docs" / "configuration.md").read_text()))


def dead_references(text: str) -> Iterator[str]:
    """Yield what a docstring or comment names and the repository does not have."""
    yield from (name for name in CODE.findall(text) if not is_known(name))
    yield from (found[0] for found in NOTE.finditer(text))
    for found in BARE_PATH.finditer(text):
        path, heading = found[1], found[2]
        is_there = path in paths() or ELSEWHERE.match(path)
        if not is_there or (heading and heading not in anchors(ROOT / path)):
            yield found[0]


def is_known(text: str) -> bool:
    if ELSEWHERE.match(text):
        return True
    if FILE.fullmatch(text) or FOLDER.fullmatch(text):
        return text.lstrip("/") in paths()
    if PACKAGE.fullmatch(text):
        return bool({text, f"{text}/", f"{text}.py"} & paths())
    if MODULE.fullmatch(text):
        return has_module(text) or text in keys()
    if found := CLASS.fullmatch(text):
        return has_class(found[1], found[2])
    if found := MEMBER.fullmatch(text):
        return has_member(found[1], found[2])
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_names_existing_files_classes_and_methods(page: Path):
    """Names in pages outlive what they name."""
    assert sorted({text for text in CODE.findall(page.read_text()) if not is_known(text)}) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_to_existing_files_and_headings(page: Path):
    """Links in pages outlive the files and headings to which they lead."""
    broken = [
        link
        for link in LINK.findall(page.read_text())
        for file, _, heading in [link.partition("#")]
        for target in [page.parent / file if file else page]
        if not target.exists() or (heading and heading not in anchors(target))
    ]
    assert broken == []


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("broker/host.py", True),
        ("broker/hosts.py", False),
        ("broker/modes/", True),
        ("broker/terms/", False),
        ("Partition.append_as_leader", True),
        ("Partition.append_as_follower", False),
        ("history.History", True),
        ("history.Historian", False),
    ],
)
def test_names_are_looked_up_in_the_repository(text: str, known: bool):
    """The checks above can fail."""
    assert is_known(text) == known


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_and_comments_name_existing_files_classes_and_methods(folder: str):
    """A package that moves leaves its old name behind in docstrings."""
    dead = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources()
        if path.is_relative_to(ROOT / folder)
        for text in prose_of(sources()[path])
        for name in dead_references(text)
    ]
    assert dead == []


@pytest.mark.parametrize(
    "text",
    [
        "see `zk/core`",
        "in base/deciders.py",
        "`minikafka.rpc.calls`",
        "the note, row 3",
        "docs/rules.md#no",
    ],
)
def test_dead_reference_of_a_docstring_is_found(text: str):
    """The checks above can fail."""
    assert len(list(dead_references(text))) == 1
