"""One task of a query over a table at a URI, which Spark reads only with a connector of Hadoop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from minikafka.spark.parquet.table_directory import TableDirectory
from minikafka.spark.workers import one_line_errors


@dataclass(frozen=True)
class TableRead:
    """The settings of the tasks that read a table. `schema`: the columns of the result."""

    directory: str
    schema: pa.Schema
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The options of the store, which may be secrets."""

    def read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the files whose names are in the first column."""
        with one_line_errors():
            files = TableDirectory(self.directory, self.storage).files
            for batch in batches:
                for name in batch.column(0).to_pylist():
                    with files.open(name) as file:
                        table = pq.read_table(file, columns=self.schema.names)
                    yield from table.cast(self.schema).to_batches()
