"""The metaclass of data source classes that Spark sends to its Python workers.

By default, Spark sends classes by name, and a worker whose Python lacks minikafka or a dependency reports only a
missing module. Classes with the metaclass `Shipped` are loaded by a function that Spark sends as code. The error of
this function says which Python lacks the module, and how to choose another Python.
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

    The function is local, so Spark's pickler sends the code of the function instead of its name.
    """

    def load(module: str, name: str) -> Any:
        import gc
        import importlib
        import os
        import sys

        try:
            is_new = module not in sys.modules
            found = getattr(importlib.import_module(module), name)
            if is_new:
                gc.freeze()  # Spark's workers collect garbage after each task
            return found
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
