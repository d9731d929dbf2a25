"""One task of a restore: writes the files of one archived partition, in order, to one topic partition.

Invariant: one producer writes the records of a partition in order. A failed attempt therefore leaves a
prefix of the records in the topic, and the next attempt writes only the records after this prefix.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from minikafka.base.model import TopicPartition
from minikafka.spark.parquet.archive_directory import ArchiveDirectory
from minikafka.spark.records.encode import Rows, content
from minikafka.spark.sink.options import WriteOptions
from minikafka.spark.sink.rows import HEADERS
from minikafka.spark.sink.writers import write_rows
from minikafka.spark.source import planning
from minikafka.spark.source.options import ReadOptions
from minikafka.spark.source.ranges import OffsetRange
from minikafka.spark.source.readers import read_ranges

_COLUMNS: Final = ["key", "value", "timestamp", "headers", "offset"]
_RUNS_MAX: Final = 1_000
"""Maximum number of listed offset runs of a partition. If there are more, each file is listed as one run."""


class Digest:
    """A checksum of records and of their order. Offsets are not included."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self.records = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows with the columns key, value, timestamp and headers."""
        times = np.asarray(batch.column("timestamp").cast(pa.int64())) // 1000
        headers = batch.column("headers").cast(HEADERS)
        rows = Rows(batch.column("key"), batch.column("value"), times, headers, times)
        self._hash.update(content(rows))
        self.records += len(times)

    def text(self) -> str:
        """Return the checksum as hexadecimal digits."""
        return self._hash.hexdigest()


class Runs:
    """The runs of consecutive offsets in archived records, each with the number of records before the run."""

    def __init__(self) -> None:
        self._files: list[list[tuple[int, int, int]]] = []
        self._records = 0

    def start_file(self) -> None:
        """Start the list of offset runs of the next file."""
        self._files.append([])

    def add(self, offsets: npt.NDArray[np.int64]) -> None:
        """Add the offsets of the next records of the current file."""
        borders = np.flatnonzero(np.diff(offsets) != 1) + 1
        file = self._files[-1]
        for part in np.split(offsets, borders) if len(offsets) else ():
            first, last = int(part[0]), int(part[-1])
            if file and file[-1][1] == first:
                file[-1] = (file[-1][0], last + 1, file[-1][2])
            else:
                file.append((first, last + 1, self._records))
            self._records += len(part)

    def listed(self) -> list[tuple[int, int, int, int]]:
        """Return (first offset, end offset, records before the run, records in the run) for each run."""
        files = [runs for runs in self._files if runs]
        if sum(map(len, files)) > _RUNS_MAX:
            files = [[(runs[0][0], runs[-1][1], runs[0][2])] for runs in files]
        starts = [run for runs in files for run in runs]
        ends = [*(run[2] for run in starts), self._records][1:]
        return _joined([(*run, end - run[2]) for run, end in zip(starts, ends, strict=True)])


def _joined(runs: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Return the runs of offsets. Two adjacent runs become one run if no offset is missing in them or between them.

    For example, the last run of a file and the first run of the next file can become one run.
    """
    found: list[tuple[int, int, int, int]] = []
    for start, end, before, records in runs:
        if found:
            first, last, base, count = found[-1]
            if last == start and last - first == count and end - start == records:
                found[-1] = (first, end, base, count + records)
                continue
        found.append((start, end, before, records))
    return found


@dataclass(frozen=True)
class RestoreTask:
    """The work of one task: write the files of one archived partition to the topic.

    `files`: their names in the archive at `directory`. `first`: the log end offset of the target partition before the
    restore.
    """

    read: ReadOptions
    write: WriteOptions
    target: TopicPartition
    directory: str
    files: tuple[str, ...]
    first: int
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The options of the store of the archive, which may be secrets."""


def load(work: RestoreTask) -> dict[str, Any]:
    """Write the records of the files. Return the number of records, the digest and the runs of offsets."""
    digest, runs = Digest(), Runs()
    written = planning.latest_positions(work.read, {})[work.target].offset - work.first

    def left() -> Iterator[pa.RecordBatch]:
        for batch in _rows(work, runs):
            skipped = max(min(written - digest.records, batch.num_rows), 0)
            digest.add(batch)
            if skipped < batch.num_rows:
                yield batch.slice(skipped)

    write_rows(work.write, left())
    return {"records": digest.records, "digest": digest.text(), "runs": runs.listed()}


def _rows(work: RestoreTask, runs: Runs) -> Iterator[pa.RecordBatch]:
    files = ArchiveDirectory(work.directory, work.storage).files
    for name in work.files:
        runs.start_file()
        with (
            files.open(name) as opened,
            pq.ParquetFile(opened, page_checksum_verification=True) as file,
        ):
            for index in range(file.num_row_groups):
                table = file.read_row_group(index, columns=_COLUMNS)
                for batch in table.to_batches():
                    runs.add(np.asarray(batch.column("offset")))
                    partition = pa.repeat(pa.scalar(work.target.partition, pa.int32()), len(batch))
                    yield batch.append_column("partition", partition)


@dataclass(frozen=True)
class VerifyTask:
    """The work of one task: read back offsets [start, end) of a partition."""

    options: ReadOptions
    wanted: OffsetRange


def verify(work: VerifyTask) -> dict[str, Any]:
    """Return the number and the digest of the records in an offset range."""
    digest = Digest()
    for batch in read_ranges(work.options, [work.wanted]):
        digest.add(batch)
    return {"records": digest.records, "digest": digest.text()}
