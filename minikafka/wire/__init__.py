"""Encoding of Kafka's protocol: own code for frames, Produce, Fetch and Metadata; the library kio for other APIs."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from types import ModuleType


def _import_kio() -> None:
    """Import kio while the package hypothesis is hidden.

    Otherwise kio would import hypothesis, which takes 0.25 s in every command and creates a directory
    `.hypothesis` in the current directory.
    """
    modules = cast("dict[str, ModuleType | None]", sys.modules)
    found = modules.pop("hypothesis", None)
    modules["hypothesis"] = None  # makes `import hypothesis` raise ImportError
    try:
        import_module("kio.static.primitive")
    finally:
        del modules["hypothesis"]
        if found is not None:
            modules["hypothesis"] = found


_import_kio()
