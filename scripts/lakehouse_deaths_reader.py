"""The reader of lakehouse-deaths: reads the tables in a loop while the streams add rows.

    lakehouse_deaths_reader.py DIRECTORY CATALOG EXTENSIONS

The reader prints `{"engine": NAME, "rows": N, "seconds": S, "fault": TEXT}` for each read, and ends when a line arrives
on standard input. `fault` is the error of the read, or the first difference from the expected rows; it is empty for a
good read. A good read has every offset of each partition from 0 to the last one exactly once, and at least as many rows
as the previous read of the same engine.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from threading import Thread

import pyarrow as pa
from lakehouse_engines import engines, settings_of
from spark_deaths_driver import has_line, read_lines, say

from minikafka.runtime.spawning import die_with
from minikafka.spark.lakehouse.tables import FORMATS


def main(directory: Path, catalog: str, extensions: str) -> None:
    """Read the tables until a line arrives on standard input."""
    die_with(os.getppid())
    lines: Queue[str] = Queue()
    Thread(target=read_lines, args=(lines,), daemon=True).start()
    readers: dict[str, Callable[[], pa.Table]] = {}
    for name in FORMATS:
        readers |= engines(settings_of(directory, "stream", name, catalog), extensions)
    found: Counter[str] = Counter()
    while not has_line(lines):
        for engine, read in readers.items():
            started = time.monotonic()
            rows, fault = result_of(read, found[engine])
            found[engine] = rows
            say(engine=engine, rows=rows, seconds=time.monotonic() - started, fault=fault)
    say(finished=True)


def result_of(read: Callable[[], pa.Table], least: int) -> tuple[int, str]:
    """Read a table, and return the number of rows and the fault. `least`: the number of rows of the previous read."""
    try:
        rows = read()
    except Exception as error:  # noqa: BLE001 - engines raise errors of many libraries
        return least, f"{type(error).__name__}: {error}"
    if rows.num_rows < least:
        return rows.num_rows, f"{rows.num_rows} rows after {least}"
    return rows.num_rows, missing_or_repeated(rows)


def missing_or_repeated(rows: pa.Table) -> str:
    """Return the first partition that lacks an offset or has one twice, as text; "" if there is no such partition."""
    kinds = ["count", "count_distinct", "max"]
    partitions = rows.group_by(["topic", "partition"]).aggregate(
        [("offset", kind) for kind in kinds]
    )
    for one in partitions.to_pylist():
        count, distinct, last = (one[f"offset_{kind}"] for kind in kinds)
        if not count == distinct == last + 1:
            return f"{one['topic']}-{one['partition']} has {count} rows with {distinct} offsets from 0 to {last}"
    return ""


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
