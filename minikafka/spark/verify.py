"""Checks in Spark that a topic holds exactly the lines of the files that were sent to it.

`python -m minikafka.spark.verify --bootstrap B --topic T --source LINES.parquet --output DIRECTORY
[--json]` reads the topic through `format("minikafka")`. A record's key is a file name, its value
one line without the line end; the n-th record of a key (by offset) must be line n of that file. The
source table has the columns file, line_no (from 1) and text. The join of the source
lines and the records is written as Parquet with a column `state`: same, differs, missing (not in the
topic) or extra (not in the source).

Invariant: every line and every record is in exactly one row of the result, so that no line and no
record is overlooked.
"""

from __future__ import annotations

import argparse
import json
import sys
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from pyspark.sql import DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as f

from minikafka.base.errors import MinikafkaError
from minikafka.base.printable import printable
from minikafka.spark.datasource import FORMAT
from minikafka.spark.progress import metrics_of
from minikafka.spark.session import session


@dataclass(frozen=True)
class VerifiedFiles:
    """Counts over all files. `differing`: records whose value is not a line of their file."""

    lines: int
    records: int
    lost: int
    duplicated: int
    reordered: int
    differing: int
    files_affected: int

    @property
    def ok(self) -> bool:
        """True if the topic holds exactly the source lines, in order."""
        return not (self.lost or self.duplicated or self.reordered or self.differing)


def verify(
    spark: SparkSession, bootstrap: str, topic: str, source: str, output: str
) -> VerifiedFiles:
    """Compare the topic with the lines in the Parquet file `source`, and return the counts.

    The join of lines and records is written to the directory `output`, which is replaced.
    """
    read = spark.read.format(FORMAT).option("kafka.bootstrap.servers", bootstrap)
    joined = _join(
        _sent(spark.read.parquet(source)), _numbered(read.option("subscribe", topic).load())
    )
    counts = Observation("counts")
    observed = joined.observe(
        counts,
        f.count("text").alias("lines"),
        f.count("offset").alias("records"),
        f.count_if(f.col("state") != "same").alias("suspects"),
    )
    observed.write.mode("overwrite").parquet(output)
    numbers = metrics_of(counts)
    differences = _differences(spark.read.parquet(output)) if numbers.get("suspects") else []
    return VerifiedFiles(
        lines=numbers.get("lines", 0),
        records=numbers.get("records", 0),
        lost=sum(found.lost for found in differences),
        duplicated=sum(found.duplicated for found in differences),
        reordered=sum(found.reordered for found in differences),
        differing=sum(found.foreign for found in differences),
        files_affected=len(differences),
    )


def _sent(source: DataFrame) -> DataFrame:
    return source.select(
        f.col("file").cast("string"),
        f.col("line_no").cast("int"),
        f.col("text").cast("binary"),
    )


def _numbered(records: DataFrame) -> DataFrame:
    """Return the records with the column `line_no`: the number of the record among the records of its file.

    Numbers start at 1, in the order of the offsets. All records of a file are in one partition.
    """
    place = f.row_number().over(Window.partitionBy("file").orderBy("partition", "offset"))
    named = records.withColumn("file", f.col("key").cast("string"))
    return named.select("file", place.alias("line_no"), "value", "partition", "offset", "timestamp")


def _join(sent: DataFrame, read: DataFrame) -> DataFrame:
    both = sent.join(read, ["file", "line_no"], "full_outer")
    state = (
        f.when(f.col("offset").isNull(), "missing")
        .when(f.col("text").isNull(), "extra")
        .when(f.col("text") == f.col("value"), "same")
        .otherwise("differs")
    )
    return both.withColumn("state", state)


def _differences(result: DataFrame) -> list[Difference]:
    """Return one `Difference` for each file that has at least one row whose state is not `same`."""
    affected = result.where("state != 'same'").select("file").distinct()
    rows = result.join(f.broadcast(affected), "file").orderBy("file", "line_no")
    sent: dict[str, list[bytes]] = {}
    read: dict[str, list[bytes]] = {}
    columns = rows.select("file", "text", "value", "offset").toArrow().to_pydict()
    for file, text, value, offset in zip(*columns.values(), strict=True):
        sent.setdefault(file, [])
        read.setdefault(file, [])
        if text is not None:
            sent[file].append(text)
        if offset is not None:
            read[file].append(value)
    return [compare(lines, read[file]) for file, lines in sent.items()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check. Return 0 if the topic holds exactly the source lines, 1 if not, 2 if an error stops the check."""
    parser = argparse.ArgumentParser(prog="python -m minikafka.spark.verify", description=__doc__)
    for name in ("bootstrap", "topic", "source", "output"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--master", default="local[*]")
    parser.add_argument(
        "--json", action="store_true", help="print one line of JSON to standard output"
    )
    given = parser.parse_args(arguments)
    try:
        spark = session("minikafka verify", given.master)
        verdict = verify(spark, given.bootstrap, given.topic, given.source, given.output)
    except MinikafkaError as error:
        sys.stderr.write(f"{printable(str(error))}\n")
        return 2
    facts = asdict(verdict) | {"ok": verdict.ok, "output": given.output}
    text = (
        json.dumps(facts)
        if given.json
        else "\n".join(f"{name}: {printable(str(fact))}" for name, fact in facts.items())
    )
    sys.stdout.write(text + "\n")
    return 0 if verdict.ok else 1


if __name__ == "__main__":
    sys.exit(main())


class Difference(NamedTuple):
    """Counts of the differences between sent and read lines. All counts are zero for equal sequences."""

    lost: int
    """Lines sent but not read. A line that was sent three times and read once counts as two."""
    duplicated: int
    """Extra copies of sent lines. A line that was sent once and read three times counts as two."""
    foreign: int
    """Lines read but never sent."""
    reordered: int
    """Minimum number of lines to move to restore the order in which the lines were sent."""


def compare(sent: Sequence[bytes], read: Sequence[bytes]) -> Difference:
    """Return the differences between two sequences of lines. Lines are compared by content and may repeat."""
    sent_counts, read_counts = Counter(sent), Counter(read)
    kept = (sent_counts & read_counts).total()
    foreign = sum(count for line, count in read_counts.items() if line not in sent_counts)
    return Difference(
        lost=len(sent) - kept,
        duplicated=len(read) - kept - foreign,
        foreign=foreign,
        reordered=kept - _in_order(sent, read),
    )


def _in_order(sent: Sequence[bytes], read: Sequence[bytes]) -> int:
    """Return the length of the longest common subsequence of two lists of lines. Fast if few lines are out of order."""
    first, last = 0, 0
    shorter = min(len(sent), len(read))
    while first < shorter and sent[first] == read[first]:
        first += 1
    while last < shorter - first and sent[-1 - last] == read[-1 - last]:
        last += 1
    sent, read = sent[first : len(sent) - last], read[first : len(read) - last]
    if _is_subsequence(sent, read) or _is_subsequence(read, sent):
        return first + last + min(len(sent), len(read))
    return first + last + _longest_common(sent, read)


def _is_subsequence(short: Sequence[bytes], long: Sequence[bytes]) -> bool:
    rest = iter(long)
    return all(line in rest for line in short)


def _longest_common(sent: Sequence[bytes], read: Sequence[bytes]) -> int:
    """Return the length of the longest common subsequence (algorithm of Hunt and Szymanski)."""
    places = defaultdict(list)
    for index in reversed(range(len(sent))):
        places[sent[index]].append(index)
    ends: list[int] = []
    for line in read:
        for place in places.get(line, ()):
            at = bisect_left(ends, place)
            ends[at : at + 1] = [place]
    return len(ends)
