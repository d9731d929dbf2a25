"""Code for Spark's Python workers: classes that are sent as code, errors of one line, and tasks with small results.

By default, Spark sends classes by name, and a worker whose Python lacks minikafka or a dependency reports only a
missing module. Classes with the metaclass `Shipped` are loaded by a function that Spark sends as code. The error of
this function says which Python lacks the module, and how to choose another Python.
"""

from __future__ import annotations

import copyreg
import json
import os
import sys
import traceback
from abc import ABCMeta
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any, Final, TypeVar

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from minikafka.base.errors import MinikafkaError


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


_WORKERS: Final = ("pyspark.", "minikafka.spark.daemon")
"""Prefixes of the names of the modules that Spark's worker processes run."""


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Make a Spark worker report a MinikafkaError as one line instead of a traceback.

    The worker process ends after the error, so changes to its environment and to `pyspark.util` are safe.
    """
    try:
        yield
    except MinikafkaError:
        main = getattr(sys.modules["__main__"], "__spec__", None)
        if main is not None and main.name.startswith(_WORKERS):
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
            _omit_line_ends(sys.modules["pyspark.util"])
        raise


def _omit_line_ends(reporter: ModuleType) -> None:
    """Make `reporter` format errors without the newline that `traceback` appends.

    Spark appends the SQLSTATE to the error text. With the newline, the SQLSTATE would be on a separate line.
    """

    def format_exception_only(kind: type[BaseException], error: BaseException) -> list[str]:
        return ["".join(traceback.format_exception_only(kind, error)).rstrip("\n")]

    changed = {"format_exception_only": format_exception_only}
    vars(reporter)["traceback"] = SimpleNamespace(**vars(traceback) | changed)


Work = TypeVar("Work")


def run_tasks(
    spark: SparkSession, function: Callable[[Work], Mapping[str, Any]], works: Sequence[Work]
) -> list[dict[str, Any]]:
    """Run `function(work)` for each item of `works` in a separate task. Return the results in order.

    Results must be convertible to JSON. Spark may run `function` more than once for an item. If a task fails,
    raises Spark's error with a one-line text from the failed task.
    """
    if not works:
        return []

    def run(index: int) -> str:
        with one_line_errors():
            return json.dumps(function(works[index]))

    # With useArrow, the function would need pandas. Spark might call a deterministic function twice for a row.
    call = f.udf(run, "string", useArrow=False).asNondeterministic()
    numbers = spark.range(0, len(works), 1, len(works))
    rows = numbers.select("id", call("id").alias("result")).collect()
    return [json.loads(row["result"]) for row in sorted(rows, key=lambda row: row["id"])]
