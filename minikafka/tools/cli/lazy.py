"""Modules that the command line imports at the top of a file, but whose code runs when a command first uses them.

`--help` and completion import the file of a command for its options. They need neither the client nor asyncio, whose
imports take longer than the rest together. Therefore a file of `cli` imports such a module whole, as in
`import minikafka.client as clients`, and uses `clients.Client` in functions and annotations. `from minikafka.client
import Client` would run the module at once. Without `import_lazily`, as in a test, each import runs its module.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any, Final

_LAZY: Final = (
    "asyncio",
    "difflib",
    "rich.cells",
    "rich.console",
    "rich.live",
    "rich.table",
    "rich.text",
    "uvloop",
)
"""The lazy modules that are not minikafka's own; those are all lazy."""

_loading: Final = threading.RLock()


class LazyModule(ModuleType):
    """A module whose code has not run. At the first access to one of its names, it becomes an ordinary module."""

    def __getattr__(self, name: str) -> Any:
        load(self)
        if type(self) is LazyModule:  # its own code asks for a name that it has not defined yet
            raise AttributeError(
                f"module {self.__name__!r} is being loaded and has no {name!r} yet"
            )
        return getattr(self, name)


def load(module: ModuleType | None) -> None:
    """Run the code of a lazy module, after that of its package. Do nothing for another module."""
    if isinstance(module, LazyModule) and isinstance(module.__loader__, _Deferred):
        with _loading:
            module.__loader__.run(module)


class _Deferred(SourceFileLoader):
    """Runs the code of one module when the module is used."""

    _is_running = False

    def exec_module(self, module: ModuleType) -> None:
        """Only make the module lazy; `load` runs its code."""
        module.__class__ = LazyModule

    def run(self, module: ModuleType) -> None:
        """Run the code of the module, unless it has run or is running."""
        load(sys.modules.get(module.__name__.rpartition(".")[0]))
        if self._is_running or type(module) is ModuleType:
            return
        self._is_running = True
        try:
            super().exec_module(module)
        finally:
            self._is_running = False
        module.__class__ = ModuleType


class _Finder:
    """Finds the lazy modules, in front of Python's own finders."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a lazy module; None for another module, which Python then finds by itself."""
        if not is_lazy(fullname):
            load(sys.modules.get(fullname.rpartition(".")[0]))
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Deferred(fullname, spec.loader.path)
        return spec


def is_lazy(name: str) -> bool:
    """True if the module with this name is loaded when it is used."""
    return name in _LAZY or name.startswith("minikafka.")


_finder: Final = _Finder()


def import_lazily() -> None:
    """From now on, let this process load lazy modules when they are used."""
    sys.meta_path.insert(0, _finder)


def import_at_once() -> None:
    """From now on, let each import run its module, so that a server loads nothing while it serves."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
