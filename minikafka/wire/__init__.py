"""Kafka's protocol bytes: framing, the hot requests by hand, everything else through kio."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from types import ModuleType


def _import_kio() -> None:
    """kio tells its types to hypothesis where that is installed: it does not get to see it.

    That would take a quarter of a second of every command, and leave a directory `.hypothesis` wherever
    one is run.
    """
    modules = cast("dict[str, ModuleType | None]", sys.modules)
    found = modules.pop("hypothesis", None)
    modules["hypothesis"] = None  # whoever imports it now is told that it is not there
    try:
        import_module("kio.static.primitive")
    finally:
        del modules["hypothesis"]
        if found is not None:
            modules["hypothesis"] = found


_import_kio()
