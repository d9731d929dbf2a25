"""The ledger pipeline: elections, ISR changes and controller terms from the ledgers of brokers.

Every partition state that ZooKeeper accepted is in a ledger line with the zxid of the write. The zxids order
the states. If a line is missing or truncated, only the fact in that line is unknown: one partition state, or
the cause of a state. Each time is from the clock of the broker that wrote the line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from minikafka.broker.ledger.writer import number_of
from minikafka.spark.frames import kept
from minikafka.spark.parquet.table_directory import TableDirectory
from minikafka.spark.pipelines.plot import Chart, Series, check_path, write
from minikafka.spark.pipelines.session.failures import PipelineError
from minikafka.spark.pipelines.session.report import Fact, Report, Summary, Table
from minikafka.spark.pipelines.streams.tables import TableSettings, save_table
from minikafka.spark.pipelines.times import date_of, facts_of, timestamp_of
from minikafka.spark.storage.locations import check_options, options_of

_LINES: Final = (
    "time long, broker int, kind string, cause string, event string, fact string, `to` int,"
    " outcome string, epoch long, reason string, topic string, `partition` int, isr array<int>,"
    " leader_epoch int, zxid long, lines long,"
    " operations array<struct<op:string,path:string,data:string>>, damaged string"
)
_STATE: Final = "leader int, leader_epoch int, isr array<int>"
_STATE_PATH: Final = r"^/brokers/topics/([^/]+)/partitions/(\d+)/state$"
_TOPIC_PATH: Final = r"^/brokers/topics/([^/]+)$"
_MARK_PATH: Final = r"^/admin/delete_topics/([^/]+)$"
_PARTITION: Final = ("topic", "partition")
_LIFE: Final = (*_PARTITION, "life")
"""The columns of one life of a partition, from the creation of its topic to the deletion."""
_NOBODY: Final = -1
_SIGN_MS: Final = 120_000
"""Maximum time between the loss of a connection to a dead leader and the election of the next leader."""
_WIDTHS_MS: Final = (1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000)
_BARS_MAX: Final = 60
_ROWS: Final = 20
"""Maximum number of rows of each table in the summary; the files in `output` have all rows."""


@dataclass(frozen=True)
class LedgerSettings:
    """The ledgers to read: ledger directories, or directories that contain `…-ledger` directories.

    `output`: a directory or URI for all rows of the tables. `plot`: a file for a picture of elections and ISR
    changes over time. `storage`: the options of their stores, which may be secrets.
    """

    ledgers: tuple[str, ...]
    output: str | None = None
    plot: str | None = None
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    def check(self) -> None:
        """Raise `ConfigError` if `output` or `plot` is invalid. Called before the ledgers are read."""
        check_options((self.output, self.plot), self.storage)
        if self.output:
            TableDirectory(self.output, options_of(self.output, self.storage))
        if self.plot:
            check_path(self.plot, self.storage)


class _Analysis(NamedTuple):
    """The result tables. The field names are also the table names in the summary and in `output`."""

    partitions: DataFrame
    brokers: DataFrame
    elections: DataFrame
    controllers: DataFrame


def run(spark: SparkSession, settings: LedgerSettings, report: Report) -> Summary:
    """Read the ledgers and return tables of partitions, brokers, elections and controller terms.

    If the settings name a plot file, also write the plot.
    """
    settings.check()
    files = _files(settings.ledgers)
    with report.stage("read ledgers"):
        reader = spark.read.schema(_LINES).option("columnNameOfCorruptRecord", "damaged")
        lines = kept(reader.json([str(file) for file in files]))
        facts = _facts(lines)
    states = kept(_states(lines))
    elections = kept(_elections(states, lines))
    analysis = _Analysis(
        _partitions(states, elections), _brokers(states, elections, lines), elections, _terms(lines)
    )
    with report.stage("analyse"):
        tables = tuple(_table(name, table, settings) for name, table in analysis._asdict().items())
        if settings.plot:
            write(_picture(states), settings.plot, settings.storage)
    totals: dict[str, Fact] = {"files": len(files), **facts, "elections_in_all": elections.count()}
    if settings.plot:
        totals["plot"] = settings.plot
    return Summary("ledger", totals, tables)


def _files(paths: Iterable[str]) -> list[Path]:
    """Return the ledger files in each path and in the path's subdirectories `…-ledger`."""
    found: list[Path] = []
    for path in map(Path, paths):
        directories = [path, *sorted(path.glob("*-ledger"))]
        own = [
            file
            for directory in directories
            if directory.is_dir()
            for file in sorted(directory.iterdir())
            if number_of(file.name) is not None
        ]
        if not own:
            raise PipelineError(
                f"{path} holds no ledger: name a directory with files ledger-NNNNNN.jsonl,"
                " or one with directories …-ledger"
            )
        found += own
    return found


def _facts(lines: DataFrame) -> dict[str, Fact]:
    [row] = lines.agg(
        f.count("kind").alias("lines"),
        f.count_if(f.col("kind").isNull()).alias("damaged_lines"),
        f.coalesce(f.sum("lines"), f.lit(0)).alias("lost_lines"),
        f.count_distinct("broker").alias("brokers_with_lines"),
    ).collect()
    return dict(row.asDict())


def _states(lines: DataFrame) -> DataFrame:
    """Return one row for each partition state that was written to ZooKeeper before the topic was deleted.

    `leader_before`, `isr_before`: leader and ISR in the partition's previous state. `isr_max`: size of the
    partition's largest ISR. `ms`: how long the state lasted, in ms. The states of a topic that was deleted and created
    again are independent of its earlier states.
    """
    living = _living(_written_states(lines), lines)
    life = Window.partitionBy(*_LIFE)
    order = life.orderBy("zxid")
    last = f.lit(lines.agg(f.max("time")).collect()[0][0]).cast("long")
    end = f.least(f.coalesce(f.lead("time").over(order), last), "deleted_at")
    return living.select(
        "*",
        f.lag("leader").over(order).alias("leader_before"),
        f.lag("isr").over(order).alias("isr_before"),
        f.max(f.size("isr")).over(life).alias("isr_max"),
        f.greatest(end - f.col("time"), f.lit(0)).alias("ms"),
    )


def _written_states(lines: DataFrame) -> DataFrame:
    """Return the partition states that leaders and controllers wrote, in lives: see `_LIFE`."""
    done = lines.where("outcome = 'ok' AND zxid IS NOT NULL")
    by_leaders = done.where("kind = 'isr'").select(
        *_PARTITION,
        "zxid",
        "time",
        "cause",
        f.lit("set").alias("op"),
        f.col("broker").alias("leader"),
        "leader_epoch",
        "isr",
    )
    path = f.col("one.path")
    written = _operations(done).where(path.rlike(_STATE_PATH) & f.col("one.data").isNotNull())
    by_controllers = written.select(
        f.regexp_extract(path, _STATE_PATH, 1).alias("topic"),
        f.regexp_extract(path, _STATE_PATH, 2).cast("int").alias("partition"),
        "zxid",
        "time",
        "cause",
        "one.op",
        f.from_json("one.data", _STATE).alias("state"),
    )
    every = by_leaders.unionByName(by_controllers.select("*", "state.*").drop("state"))
    order = Window.partitionBy(*_PARTITION).orderBy("zxid")
    # The leader epoch begins again at 0. It shows a new life if the line with the creation is missing.
    is_new = (f.col("op") == "create") | (f.col("leader_epoch") < f.lag("leader_epoch").over(order))
    begins = every.withColumn("begins", f.when(is_new, 1).otherwise(0))
    return begins.withColumn("life", f.sum("begins").over(order)).drop("begins", "op")


def _operations(lines: DataFrame) -> DataFrame:
    written = lines.where("kind = 'write' AND outcome = 'ok'")
    return written.select("zxid", "time", "cause", f.explode("operations").alias("one"))


def _living(states: DataFrame, lines: DataFrame) -> DataFrame:
    """Return the states that were written before the deletion of their topic, with its time in `deleted_at`.

    A topic is deleted when it is marked for deletion. If the line with the mark is missing, the removal of its nodes
    counts as the deletion. Only the time of the removal is known, because ZooKeeper returns no zxid for it.
    """
    known = states.join(_deletions(lines), "topic", "left")
    life = Window.partitionBy(*_LIFE)
    timed = known.withColumns(
        {"born": f.min("zxid").over(life), "last_time": f.max("time").over(life)}
    )
    mark = f.array_min(f.filter("marks", lambda one: one.zxid > f.col("born")))
    removed = f.array_min(f.filter("removals", lambda at: at >= f.col("last_time")))
    ended = timed.withColumns({"mark": mark, "removed": removed})
    living = ended.where(f.col("mark").isNull() | (f.col("zxid") < f.col("mark.zxid")))
    helpers = ("born", "last_time", "mark", "removed", "marks", "removals")
    return living.withColumn("deleted_at", f.least("mark.time", "removed")).drop(*helpers)


def _deletions(lines: DataFrame) -> DataFrame:
    """Return for each topic the zxids and times of its `marks` for deletion, and the times of the `removals`."""
    operations = _operations(lines)
    path, op = f.col("one.path"), f.col("one.op")
    is_mark = path.rlike(_MARK_PATH) & (op == "create") & f.col("zxid").isNotNull()
    is_removal = path.rlike(_TOPIC_PATH) & (op == "delete")
    named = operations.where(is_mark | is_removal).withColumn(
        "topic", f.regexp_extract(path, r"([^/]+)$", 1)
    )
    return named.groupBy("topic").agg(
        f.collect_list(f.when(is_mark, f.struct("zxid", "time"))).alias("marks"),
        f.collect_list(f.when(is_removal, f.col("time"))).alias("removals"),
    )


def _elections(states: DataFrame, lines: DataFrame) -> DataFrame:
    """Return one row for each leader change, with the controller event that caused the change.

    Both durations end at the change. `election_ms` starts at the event. `recovery_ms` starts at the event, or
    when a follower last lost its connection to the old leader, whichever is earlier. Connections that were
    lost more than `_SIGN_MS` before the change are ignored.
    """
    changes = states.where("leader_before != leader").select(
        "time",
        *_PARTITION,
        f.col("leader_before").alias("from"),
        f.col("leader").alias("to"),
        "leader_epoch",
        "cause",
    )
    events = (
        lines.where("kind = 'event'")
        .groupBy("cause")
        .agg(f.first("event").alias("event"), f.min("time").alias("event_time"))
    )
    signs = lines.where("kind = 'broker' AND fact = 'connection lost'").select(
        f.col("to").alias("dead"), f.col("time").alias("sign_time")
    )
    known = changes.join(events, "cause", "left")
    is_sign = (signs.dead == known["from"]) & signs.sign_time.between(
        known.time - _SIGN_MS, known.time
    )
    names = ("time", *_PARTITION, "from", "to", "leader_epoch", "cause", "event", "event_time")
    joined = known.join(signs, is_sign, "left").groupBy(*names)
    first = joined.agg(f.max("sign_time").alias("sign_time"))
    begun = f.least("sign_time", "event_time")
    return first.select(
        timestamp_of(f.col("time")).alias("time"),
        *names[1:6],
        "event",
        "cause",
        (f.col("time") - f.col("event_time")).alias("election_ms"),
        (f.col("time") - begun).alias("recovery_ms"),
    ).orderBy("time", *_PARTITION)


def _picture(states: DataFrame) -> Chart:
    """Return a picture with bars of elections and ISR changes over time."""
    left, joined = _isr_changes()
    [(first, last)] = states.agg(f.min("time"), f.max("time")).collect()
    span = (last or 0) - (first or 0)
    width = next((width for width in _WIDTHS_MS if span < width * _BARS_MAX), _WIDTHS_MS[-1])
    begin = (f.floor(f.col("time") / width) * width).alias("begin")
    counts = states.groupBy(begin).agg(
        f.count_if(f.col("leader") != f.col("leader_before")).alias("elections"),
        _sum(left).alias("left the ISR"),
        _sum(joined).alias("joined the ISR"),
    )
    dated = [(date_of(row.begin * 1000), row) for row in counts.orderBy("begin").collect()]
    times = [date for date, _ in dated if date is not None]
    rows = [row for date, row in dated if date is not None]
    names = ("elections", "left the ISR", "joined the ISR")
    series = [Series(name, times, [float(row[name]) for row in rows]) for name in names]
    return Chart("Elections and changes of ISRs", f"per {width // 1000:,} s", series, width / 1000)


def _partitions(states: DataFrame, elections: DataFrame) -> DataFrame:
    left, joined = _isr_changes()
    is_short = f.size("isr") < f.col("isr_max")
    by_state = states.groupBy(*_PARTITION).agg(
        f.count(f.lit(1)).alias("states"),
        _sum(left).alias("left_isr"),
        _sum(joined).alias("joined_isr"),
        _sum(f.when(is_short, f.col("ms"))).alias("under_replicated_ms"),
        _sum(f.when(f.col("leader") == _NOBODY, f.col("ms"))).alias("offline_ms"),
    )
    by_election = elections.groupBy(*_PARTITION).agg(
        f.count(f.lit(1)).alias("elections"), f.max("recovery_ms").alias("longest_recovery_ms")
    )
    both = by_state.join(by_election, list(_PARTITION), "left")
    counted = both.withColumn("elections", f.coalesce("elections", f.lit(0)))
    return counted.orderBy(f.desc("under_replicated_ms"), *_PARTITION)


def _isr_changes() -> tuple[Column, Column]:
    """Return two columns: how many brokers left, and how many joined, the ISR since the previous state.

    Both columns are null if the previous state is unknown.
    """
    is_known = f.col("isr_before").isNotNull()
    left = f.size(f.array_except("isr_before", "isr"))
    joined = f.size(f.array_except("isr", "isr_before"))
    return f.when(is_known, left), f.when(is_known, joined)


def _sum(column: Column) -> Column:
    return f.coalesce(f.sum(column), f.lit(0))


def _brokers(states: DataFrame, elections: DataFrame, lines: DataFrame) -> DataFrame:
    """Return counts per broker: gained and lost leaderships, removals from an ISR, starts, lost ZooKeeper sessions."""

    def each(table: DataFrame, broker: Column, name: str) -> DataFrame:
        return table.select(broker.alias("broker"), f.lit(name).alias("name"))

    left = states.select(f.explode(f.array_except("isr_before", "isr")).alias("broker"))
    about = lines.where("kind = 'broker'")
    names = ("became_leader", "lost_leadership", "left_isr", "started", "session_lost")
    every = each(elections, f.col("to"), names[0])
    every = every.unionByName(each(elections, f.col("from"), names[1]))
    every = every.unionByName(each(left, f.col("broker"), names[2]))
    for fact, name in (("started", names[3]), ("session lost", names[4])):
        own = about.where(f.col("fact") == fact)
        every = every.unionByName(each(own, f.col("broker"), name))
    counts = [f.count_if(f.col("name") == name).alias(name) for name in names]
    return every.where(f.col("broker") != _NOBODY).groupBy("broker").agg(*counts).orderBy("broker")


def _terms(lines: DataFrame) -> DataFrame:
    """Return the controller terms. A term ends at the controller's resignation, else at the next election."""
    own = lines.where("kind = 'election' AND outcome IN ('won', 'took over', 'resigned')")
    terms = own.groupBy("epoch", "broker").agg(
        f.min(f.when(f.col("outcome") != "resigned", f.col("time"))).alias("won"),
        f.max(f.when(f.col("outcome") == "resigned", f.col("time"))).alias("resigned"),
        f.max(f.when(f.col("outcome") == "resigned", f.col("reason"))).alias("reason"),
    )
    later = f.lead("won").over(Window.partitionBy(f.lit(0)).orderBy("epoch"))
    return terms.select(
        "epoch",
        f.col("broker").alias("controller"),
        timestamp_of(f.col("won")).alias("won"),
        (f.coalesce("resigned", later) - f.col("won")).alias("ms"),
        "reason",
    ).orderBy("epoch")


def _table(name: str, table: DataFrame, settings: LedgerSettings) -> Table:
    """Write the table to `output`, if that is set, and return its first rows."""
    if settings.output:
        storage = options_of(settings.output, settings.storage)
        place = TableSettings(f"{settings.output}/{name}", storage=storage)
        save_table(table, place, "overwrite")
    return Table(name, tuple(table.columns), facts_of(table.limit(_ROWS)))
