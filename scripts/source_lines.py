"""The input of quickstart: every line of every .py file of the running Python's standard library.

Invariant: the files are read only once, so that the same bytes are sent and compared. A line is the bytes between
two line feeds. The name of a file is the path relative to the library's folder.
"""

from __future__ import annotations

import sysconfig
from collections import deque
from collections.abc import Iterator
from pathlib import Path

WINDOW = 64
"""Number of files that are sent in parallel, so that every partition gets records all the time."""
_NOT_THE_LIBRARY = {"site-packages", "dist-packages", "__pycache__"}

Lines = dict[bytes, list[bytes]]


def read() -> Lines:
    """Return the lines of each file by file name. Empty files are left out."""
    top = Path(sysconfig.get_path("stdlib"))
    lines: Lines = {}
    for file in sorted(top.rglob("*.py")):
        name = file.relative_to(top)
        if not _NOT_THE_LIBRARY.isdisjoint(name.parts) or not file.is_file():
            continue
        if data := file.read_bytes():
            lines[name.as_posix().encode()] = data.removesuffix(b"\n").split(b"\n")
    return lines


def interleaved(lines: Lines) -> Iterator[tuple[bytes, bytes]]:
    """Yield (file name, line). Up to `WINDOW` files take turns; the lines of each file stay in order."""
    waiting = iter(lines.items())
    turns: deque[tuple[bytes, Iterator[bytes]]] = deque()
    while True:
        while len(turns) < WINDOW and (following := next(waiting, None)):
            turns.append((following[0], iter(following[1])))
        if not turns:
            return
        name, rest = turns.popleft()
        line = next(rest, None)
        if line is not None:
            yield name, line
            turns.append((name, rest))


def write_parquet(lines: Lines, file: Path) -> None:
    """Write the lines as a Parquet table for `minikafka.spark.verify`: file, line_no (from 1) and text."""
    import pyarrow as pa  # only a run with Spark has this package
    import pyarrow.parquet as pq

    names, numbers, values = [], [], []
    for name, content in lines.items():
        names += [name.decode()] * len(content)
        numbers += range(1, len(content) + 1)
        values += content
    columns = {
        "file": pa.array(names, pa.string()),
        "line_no": pa.array(numbers, pa.int32()),
        "text": pa.array(values, pa.binary()),
    }
    pq.write_table(pa.table(columns), file)
