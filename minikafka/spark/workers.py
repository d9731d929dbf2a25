"""How the classes of the data source reach Spark's Python workers: by name, like all installed classes.

A worker whose Python lacks this package, or a package that it needs, would report a missing module and
nothing else. So classes with the metaclass `Shipped` are loaded by a function that Spark sends as code. The
error of this function says which Python lacks the module, and how to choose another Python.
"""

from __future__ import annotations

import copyreg
from abc import ABCMeta
from collections.abc import Callable
from typing import Any


class Shipped(ABCMeta):
    """The metaclass of classes that Spark sends to its workers."""


def _loader() -> Callable[[str, str], Any]:
    """Return the function that loads a class in a worker.

    Spark's pickler sends it as code, because a local function cannot be imported by its name.
    """

    def load(module: str, name: str) -> Any:
        import importlib
        import os
        import sys

        try:
            return getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
            version = ".".join(map(str, sys.version_info[:3]))
            text = (
                f"{sys.executable}, the Python {version} of Spark's workers, has no module {error.name}:"
                " pip install 'minikafka[spark]' for it, or start Spark with the environment variable"
                " PYSPARK_PYTHON (or spark.pyspark.python) set to a Python that has it on every machine"
            )
            raise ModuleNotFoundError(text, name=error.name) from None

    return load


def _reduce(shipped: Shipped) -> tuple[Callable[[str, str], Any], tuple[str, str]]:
    return _loader(), (shipped.__module__, shipped.__qualname__)


copyreg.pickle(Shipped, _reduce)
