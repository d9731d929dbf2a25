"""The source files of the repository, each read and parsed once for all rules that one process checks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "minikafka"
STRING_OR_COMMENT = re.compile(
    r"""
    (?P<long>(?P<quotes>\"{3}|'{3}) (?P<text>(?:\\.|.)*?) (?P=quotes))
    | "(?:\\.|[^"\\\n])*"
    | '(?:\\.|[^'\\\n])*'
    | (?P<comment>\#[^\n]*)
    """,
    re.DOTALL | re.VERBOSE,
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def files_below(folder: Path) -> Sequence[Path]:
    """Return the Python files of a folder and of the folders in it, sorted."""
    return sorted(folder.rglob("*.py"))


@cache
def text_of(path: Path) -> str:
    return path.read_text()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path), str(path))


@cache
def nodes_of(path: Path) -> Sequence[ast.AST]:
    """Return all nodes of the syntax tree of a file."""
    return list(ast.walk(tree_of(path)))


def forget_trees() -> None:
    """Release all syntax trees: each full garbage collection of a later test would visit their million nodes."""
    nodes_of.cache_clear()
    tree_of.cache_clear()


def functions_of(path: Path) -> list[Function]:
    return [node for node in nodes_of(path) if isinstance(node, Function)]


def classes_of(path: Path) -> list[ast.ClassDef]:
    return [node for node in nodes_of(path) if isinstance(node, ast.ClassDef)]


def prose_of(text: str) -> Iterator[str]:
    """Yield the comments of a source file, and its docstrings: the long strings that stand at the start of a line."""
    for found in STRING_OR_COMMENT.finditer(text):
        if found["comment"]:
            yield found["comment"]
        elif found["long"] and not text[
            text.rfind("\n", 0, found.start()) + 1 : found.start()
        ].strip(" r"):
            yield found["text"]


def code_of(text: str) -> str:
    """Return a source file with each string and comment replaced by its line breaks."""
    return STRING_OR_COMMENT.sub(lambda found: "\n" * found[0].count("\n"), text)
