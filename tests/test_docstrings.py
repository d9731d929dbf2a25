"""Every public method has a docstring, or the protocol or base class that declares the method has one."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from support.source_files import PACKAGE, ROOT, classes_of, files_below

Methods = dict[str, ast.FunctionDef | ast.AsyncFunctionDef]
Classes = dict[str, list[ast.ClassDef]]


@cache
def methods_of(node: ast.ClassDef) -> Methods:
    return {
        part.name: part
        for part in node.body
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
    }


@cache
def bases_of(node: ast.ClassDef) -> set[str]:
    """Return the names of the base classes, without modules and type arguments."""
    named = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
    return {base.attr if isinstance(base, ast.Attribute) else ast.unparse(base) for base in named}


def described_by(
    node: ast.ClassDef, classes: Classes, protocols: Sequence[ast.ClassDef]
) -> set[str]:
    """Return the methods that a base class, or a protocol with no method that this class lacks, describes."""
    methods = methods_of(node)
    found: set[str] = set()
    for name in bases_of(node):
        for base in classes.get(name, []):
            if base is not node:
                found |= described(base) | described_by(base, classes, protocols)
    for protocol in protocols:
        if methods_of(protocol).keys() <= methods.keys():
            found |= described(protocol)
    return found


@cache
def described(node: ast.ClassDef) -> set[str]:
    return {name for name, method in methods_of(node).items() if ast.get_docstring(method)}


def is_setter(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(
        ast.unparse(mark).endswith((".setter", "overload")) for mark in method.decorator_list
    )


def test_every_public_method_or_the_protocol_that_declares_it_has_a_docstring():
    """A caller need not read the code."""
    classes: Classes = defaultdict(list)
    where: dict[ast.ClassDef, Path] = {}
    for path in files_below(PACKAGE):
        for node in classes_of(path):
            classes[node.name].append(node)
            where[node] = path.relative_to(ROOT)
    protocols = [node for node in where if "Protocol" in bases_of(node)]

    assert [
        f"{path}: {node.name}.{name}"
        for node, path in where.items()
        if not node.name.startswith("_")
        for name in methods_of(node).keys()
        - described(node)
        - described_by(node, classes, protocols)
        if not name.startswith("_") and not is_setter(methods_of(node)[name])
    ] == []
