"""The process from which Spark forks its Python workers, with the modules of a task already imported.

Spark starts `python -m minikafka.spark.daemon` instead of `pyspark.daemon` if `spark.python.daemon.module` names
this module. A forked worker then begins its first task at once. Spark ends the worker of a task whose rows it
does not read to the end, as `limit` and `isEmpty` do, so such queries need new workers all the time.

The libraries that are imported here start threads. OpenBLAS and jemalloc stop and restart theirs at a fork, and
Arrow starts its threads at their first use.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO, Final

from pyspark import daemon

_IMPORTED: Final = (
    "fastcrc",
    "isal.isal_zlib",
    "pyarrow",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "minikafka.spark.datasource",
)
"""The modules that tasks of the data source use. A missing one is reported by the task that needs it."""

Main = Callable[[BinaryIO, BinaryIO], Any]


def ending_quietly(main: Main) -> Main:
    """Return the main function of a worker that ends without a traceback if Spark has closed its socket.

    Spark closes the socket when it needs no further rows. `pyspark.daemon` would print a traceback about it.
    """

    def run(infile: BinaryIO, outfile: BinaryIO) -> None:
        try:
            main(infile, outfile)
        finally:
            try:
                outfile.flush()
            except ConnectionError:
                os._exit(0)

    return run


def serve() -> None:
    """Import the modules, and run Spark's daemon until Spark ends it."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name in _IMPORTED:
        with suppress(ImportError):
            importlib.import_module(name)
    worker: Any = importlib.import_module(sys.argv[1] if len(sys.argv) > 1 else "pyspark.worker")
    worker.main = ending_quietly(worker.main)
    gc.collect()
    gc.freeze()  # workers collect garbage after each task
    daemon.manager()


if __name__ == "__main__":
    serve()
