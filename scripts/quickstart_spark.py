"""The PySpark job of quickstart: joins the topic with the source lines and writes the result as Parquet.

    python quickstart_spark.py SOURCE.parquet RESULT_DIRECTORY

Prints one line when its session is ready, then waits for one line on stdin: {"bootstrap": …,
"topic": …}. Prints the verdict of `minikafka.spark.verify`, and a checksum of the table, as one
line of JSON. Ends together with the process that started it.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from minikafka.cluster.processes import die_with
from minikafka.spark.session import session
from minikafka.spark.verify import verify


def main(source: str, result: str) -> None:
    """Start a session, announce it, wait for the request, verify the topic."""
    die_with(os.getppid())
    spark = session("minikafka quickstart")
    _say({"lines": spark.read.parquet(source).count()})
    wanted = json.loads(sys.stdin.readline() or "null")
    if wanted is not None:
        found = verify(spark, wanted["bootstrap"], wanted["topic"], source, result)
        written = spark.read.parquet(result)
        _say(asdict(found) | {"ok": found.ok, "checksum": checksum(written)})
    spark.stop()


def checksum(table: DataFrame) -> int:
    """Return one number computed from value, file, partition and offset of every record of the table."""
    place = f.encode(f.concat_ws(" ", "file", "partition", "offset"), "utf-8")
    [row] = table.agg(f.sum(f.crc32(f.concat("value", place)))).collect()
    return row[0] or 0


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
