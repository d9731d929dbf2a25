"""The process from which Spark forks its Python workers, with the modules of a task already imported.

Spark starts `python -m minikafka.spark.daemon` instead of `pyspark.daemon` if `spark.python.daemon.module` names
this module. A forked worker then begins its first task at once. Spark ends the worker of a task whose rows it
does not read to the end, as `limit` and `isEmpty` do, so such queries need new workers all the time.

Spark and a worker exchange small messages through TCP: the command of a task, then its rows. Linux delays the
acknowledgement of a message by 40 ms, and Spark's end sends the next message only after the acknowledgement. So the
worker's end acknowledges each message at once.

The libraries that are imported here start threads. OpenBLAS and jemalloc stop and restart theirs at a fork, and
Arrow starts its threads at their first use.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import socket
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, BinaryIO, Final

from pyspark import daemon

_IMPORTED: Final = (
    "backports.zstd",
    "compression.zstd",
    "encodings.idna",
    "fastcrc",
    "isal.isal_zlib",
    "lz4.frame",
    "numpy.ma",
    "pyarrow",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "minikafka.spark.datasource",
)
"""The modules that tasks of the data source use. A missing one is reported by the task that needs it."""

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""Parameters of glibc's `mallopt`."""
_KEPT_BYTES: Final = 64 << 20
_KEPT_BLOCK_BYTES: Final = 32 << 20
"""Maximum size of a block whose memory is kept: the largest that `mallopt` accepts."""

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


def answering_at_once(main: Main) -> Main:
    """Return the main function of a worker that sends data and acknowledges Spark's data without delay."""

    def run(infile: BinaryIO, outfile: BinaryIO) -> None:
        with suppress(OSError):  # a Unix domain socket refuses these options and needs none
            _avoid_delays(outfile.fileno())
        main(infile, outfile)

    return run


def _avoid_delays(descriptor: int) -> None:
    connection = socket.socket(fileno=descriptor)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_QUICKACK"):
            # Linux delays acknowledgements again after the socket has sent data, so each task sets this option.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
    finally:
        connection.detach()


def keep_freed_memory() -> None:
    """Let this process and its forks keep up to `_KEPT_BYTES` of freed memory, for the next batch of rows.

    Otherwise the columns of each batch are written to new pages, which the kernel must clear.
    """
    with suppress(AttributeError, OSError):  # not glibc
        libc = ctypes.CDLL(None)
        libc.mallopt(_MMAP_THRESHOLD, _KEPT_BLOCK_BYTES)
        libc.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        if arrow := sys.modules.get("pyarrow"):
            arrow.set_memory_pool(arrow.system_memory_pool())


def import_modules(names: Iterable[str] = ()) -> None:
    """Import the modules that tasks use, and `names`, and generate the code of the messages that tasks exchange.

    The forks of this process need not do it again.
    """
    for name in (*names, *_IMPORTED):
        with suppress(ImportError):
            importlib.import_module(name)
    with suppress(ImportError):
        importlib.import_module("minikafka.spark.wire.producing").prepare_messages()


def serve() -> None:
    """Import the modules, and run Spark's daemon until Spark ends it."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    import_modules()
    keep_freed_memory()
    worker: Any = importlib.import_module(sys.argv[1] if len(sys.argv) > 1 else "pyspark.worker")
    worker.main = ending_quietly(answering_at_once(worker.main))
    gc.collect()
    gc.freeze()  # workers collect garbage after each task
    daemon.manager()


if __name__ == "__main__":
    serve()
