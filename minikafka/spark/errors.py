"""How errors of the data source reach the user of Spark."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

from minikafka.base.errors import MinikafkaError


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Have a worker of Spark report an expected error as one line instead of a traceback.

    The worker ends with the error, so changing its environment and `pyspark.util` affects nothing else.
    """
    try:
        yield
    except MinikafkaError:
        main = getattr(sys.modules["__main__"], "__spec__", None)
        if main is not None and main.name.startswith("pyspark."):
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
            _omit_line_ends(sys.modules["pyspark.util"])
        raise


def _omit_line_ends(reporter: ModuleType) -> None:
    """Have `reporter` format errors without the line end that `traceback` appends.

    Spark appends the SQLSTATE to the text of the error, and would place it on a line of its own.
    """

    def format_exception_only(kind: type[BaseException], error: BaseException) -> list[str]:
        return ["".join(traceback.format_exception_only(kind, error)).rstrip("\n")]

    changed = {"format_exception_only": format_exception_only}
    vars(reporter)["traceback"] = SimpleNamespace(**vars(traceback) | changed)
