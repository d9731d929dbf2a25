"""`python -m benchmarks.spark_registry`: records of a schema registry in Spark, next to Spark's own functions.

Each round decodes the same Avro records with `decoded`, with Spark's `from_avro`, and not at all, in turn, in one
session with the master `local[2]`; then it encodes the rows with `encoded` and `to_avro`. The first two rounds are not
counted. The records are in memory before, and the results are dropped. MINIKAFKA_SPARK_AVRO_JAR names the jar of
spark-avro. `from_avro` gets the records without their first five bytes, because it does not read the ids of schemas.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import from_avro, to_avro

from benchmarks import report
from minikafka.spark.registry import decoded, encoded
from minikafka.spark.session import session

JAR: Final = "MINIKAFKA_SPARK_AVRO_JAR"
OURS, SPARK, NOTHING = "minikafka", "Spark's function", "no function"
_WARM_ROUNDS: Final = 2
_SCHEMA: Final = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": ["null", "string"], "default": None},
        {"name": "price", "type": "double"},
        {"name": "count", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "place", "type": "string"},
    ],
}
_COLUMNS: Final = (
    "id",
    "concat('item-', id % 100) item",
    "id * 0.5D price",
    "cast(id % 7 as int) count",
    "timestamp_millis(1700000000000 + id) at",
    "'Berlin' place",
)
_FRAME_BYTES: Final = 5
Rates = dict[str, list[float]]
"""Million rows per second of each round."""


class _Registry(BaseHTTPRequestHandler):
    """A registry with one schema, whose id is 1."""

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        data = json.dumps({"id": 1, "schema": json.dumps(_SCHEMA)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = _answer  # noqa: N815

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def running_registry() -> Iterator[str]:
    """Yield the URL of a registry."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Registry) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def in_turn(runs: Mapping[str, Callable[[], DataFrame]], rows: int, rounds: int) -> Rates:
    """Return the rates at which the frames are computed, in turn."""
    rates: Rates = {name: [] for name in runs}
    for turn in range(-_WARM_ROUNDS, rounds):
        for name, frame in runs.items():
            begin = time.perf_counter()
            frame().write.format("noop").mode("overwrite").save()
            spent = time.perf_counter() - begin
            if turn >= 0:
                rates[name].append(rows / spent / 1e6)
    return rates


def show(title: str, rates: Rates) -> None:
    """Print the medians in million rows per second, and the median ratio of minikafka to each other."""
    cells = [f"{OURS} {statistics.median(rates[OURS]):.3f} M/s"]
    for name in (SPARK, NOTHING):
        each = [ours / other for ours, other in zip(rates[OURS], rates[name], strict=True)]
        cells.append(
            f"{name} {statistics.median(rates[name]):.3f} M/s ({statistics.median(each):.2f}x)"
        )
    print(f"{title:8} " + "   ".join(cells), flush=True)


def measure(spark: SparkSession, url: str, rows: int, rounds: int) -> dict[str, Rates]:
    """Print and return the rates of decoding and encoding."""
    schema = json.dumps(_SCHEMA)
    options = {"schema.registry.url": url, "topic": "orders", "schema": schema}
    plain = spark.range(rows).selectExpr(*_COLUMNS).select(f.struct("*").alias("value")).cache()
    # A cached frame would be the result of each `encoded` below, because Spark compares plans.
    records = encoded(plain, "confluent_avro", options).localCheckpoint()
    plain.count()
    bare = f.substr(f.col("value"), f.lit(_FRAME_BYTES + 1))
    decoding = in_turn(
        {
            OURS: lambda: decoded(records, "confluent_avro", options),
            SPARK: lambda: records.select(from_avro(bare, schema)),
            NOTHING: lambda: records,
        },
        rows,
        rounds,
    )
    show("decode", decoding)
    encoding = in_turn(
        {
            OURS: lambda: encoded(plain, "confluent_avro", options),
            SPARK: lambda: plain.select(to_avro("value", schema)),
            NOTHING: lambda: plain,
        },
        rows,
        rounds,
    )
    show("encode", encoding)
    return {"decode": decoding, "encode": encoding}


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark_registry", description=__doc__
    )
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds (default: 5)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows (default: 1000000)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append the results to FILE")
    options = parser.parse_args()
    jar = os.environ.get(JAR)
    if not jar:
        parser.error(f"{JAR} must name the jar of spark-avro")
    machine = report.machine()
    print(machine, flush=True)
    spark = session("registry", "local[2]", spark_jars=jar)
    with running_registry() as url:
        figures = measure(spark, url, options.rows, options.rounds)
    spark.stop()
    if options.json is not None:
        report.append(options.json, {"machine": machine, "spark_registry": figures})


if __name__ == "__main__":
    main()
