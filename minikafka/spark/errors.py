"""Shows errors of the data source to Spark users as one line."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Final

from minikafka.base.errors import MinikafkaError

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
