"""Kafka's protocol as bytes: frames, Produce, Fetch and Metadata by hand, other APIs through the library kio."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from types import ModuleType


def _import_kio() -> None:
    """Import kio while hypothesis appears not to be installed.

    Otherwise kio would import hypothesis to register its types, which takes 0.25 s in every command and leaves a
    directory `.hypothesis` in the current directory.
    """
    modules = cast("dict[str, ModuleType | None]", sys.modules)
    found = modules.pop("hypothesis", None)
    modules["hypothesis"] = None  # an import of it raises ImportError now
    try:
        import_module("kio.static.primitive")
    finally:
        del modules["hypothesis"]
        if found is not None:
            modules["hypothesis"] = found


_import_kio()
