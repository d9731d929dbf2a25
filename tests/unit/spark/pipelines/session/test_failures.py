"""Spark errors are explained in one line. The error texts in the tests are Spark's, shortened."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError, ErrorCode, KafkaError
from minikafka.spark.pipelines.session.failures import explain
from minikafka.spark.wire.leaders import Unreachable


class SparkError(Exception):
    """An error as pyspark raises it, with the attributes `_desc` (text without Java stack) and `_cause`."""

    def __init__(self, text: str, cause: BaseException | None = None) -> None:
        super().__init__(
            f"{text}\n\nJVM stacktrace:\n\tat org.apache.spark.Query.run(Query.scala:1)"
        )
        self._desc = text
        self._cause = cause


UNREACHABLE = (
    "[PYTHON_DATA_SOURCE_ERROR] Failed to generate Python data source read partitions: "
    "minikafka.spark.wire.leaders.Unreachable: no broker answers "
    "(127.0.0.1:1: [Errno 111] Connection refused) SQLSTATE: 38000"
)
NO_REGISTRY = (
    "[STREAM_FAILED] Query terminated with exception: minikafka.spark.registry.client.RegistryError: "
    "schema.registry.url http://h: no answer (Connection refused); check the address, and that the registry runs"
)
NO_VIEW = (
    "[TABLE_OR_VIEW_NOT_FOUND] The table or view `x` cannot be found. Verify the spelling.\n"
    "Search path: [`system`.`builtin`]. SQLSTATE: 42P01; line 1 pos 5;\n'Project\n+- 'Relation [x]"
)
NO_COLUMN = (
    "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `nope` cannot be resolved. "
    "Did you mean one of the following? [`key`]. SQLSTATE: 42703; line 1 pos 7;\n'Project ['nope]"
)
JAVA = (
    "An error occurred while calling o298.parquet.\n: org.apache.spark.SparkException: Job aborted due to "
    "stage failure: Task 0 in stage 16.0 failed 1 times (localhost executor driver): "
    "java.io.IOException: Mkdirs failed to create file:/proc/x\n\tat org.apache.hadoop.fs.Local.create(L.java:1)"
)
STREAM = (
    "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: assertion failed: There are [1] "
    "sources in the checkpoint offsets and now there are [2] sources requested by the query. Cannot continue. "
    "SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: [id = 1, runId = 2]"
)
NO_TOPIC = (
    "[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] "
    "Failed when Python streaming data source perform latestOffset: minikafka.base.errors.KafkaError: "
    "UNKNOWN_TOPIC_OR_PARTITION: clicks: no such topic; correct option subscribe, or create it SQLSTATE: 38000"
)
LOST = (
    "[PYTHON_DATA_SOURCE_ERROR] minikafka.spark.source.ranges.DataLost: offset 7 of clicks-0 is not in the log; "
    "set failOnDataLoss to false to read the rest SQLSTATE: 38000"
)
NO_MARKER = (
    "[STREAM_FAILED] Query [id = 1] terminated with exception: minikafka.base.errors.ConfigError: the brokers have "
    "no marker of query 1; to write micro-batch 7, also if it was written before, set option exactlyOnceFrom to 7 "
    "SQLSTATE: 38000"
)
RESTORED = (
    "[STREAM_FAILED] minikafka.spark.sink.once.commit.OtherContent: the topic has the rows up to micro-batch 1000000,"
    " and micro-batch 1000000 now has other offsets, from an older copy of the checkpoint: restore the newest"
    " checkpoint, or name a new checkpoint and a new topic; another transactionalIdPrefix writes the rows again"
)
NO_TIME = (
    '[EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE] The event time `ts` has the invalid type "BIGINT", '
    'but expected "TIMESTAMP". SQLSTATE: 42K09'
)
MASTER = (
    "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n: "
    "org.apache.spark.SparkException: Could not parse Master URL: 'foo'\n\tat org.apache.spark.X.y(X.scala:1)"
)
PYTHON = (
    "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: "
    'Traceback (most recent call last):\n  File "x.py", line 1, in f\n'
    "ZeroDivisionError: division by zero\n SQLSTATE: 38000"
)
NO_ROOM = (
    "An error occurred while calling o9.start.\n: java.io.IOException: No space left on device"
)
NO_STREAM = (
    "[WRITE_STREAM_NOT_ALLOWED] `writeStream` can be called only on streaming Dataset/DataFrame."
    " SQLSTATE: 42601"
)
NO_STORE = 'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "s4"'
LINES = {
    NO_ROOM: (
        "IOException: No space left on device: make room on the disk, also on that of the checkpoint, and start again,"
        " which continues"
    ),
    NO_STREAM: (
        "the last step reads no records of a source: select from a source or from an earlier step, or set trigger ="
        ' "batch"'
    ),
    NO_STORE: (
        'UnsupportedFileSystemException: No FileSystem for scheme "s4": check the URI of the checkpoint, and that'
        " Spark has the jars of its store"
    ),
    NO_REGISTRY: (
        "schema.registry.url http://h: no answer (Connection refused); check the address, and that the registry runs"
    ),
    UNREACHABLE: (
        "no broker answers (127.0.0.1:1: [Errno 111] Connection refused): "
        "check --bootstrap, and that a broker runs"
    ),
    NO_VIEW: (
        "The table or view `x` cannot be found. Verify the spelling: "
        "the SQL of a step reads from sources and earlier steps by name"
    ),
    NO_COLUMN: (
        "A column with name `nope` cannot be resolved. Did you mean one of the following? [`key`]."
    ),
    JAVA: ("IOException: Mkdirs failed to create file:/proc/x: check the path and its permissions"),
    NO_TOPIC: "clicks: no such topic: minikafka topics list shows the topics",
    LOST: (
        "offset 7 of clicks-0 is not in the log: "
        "--skip-lost reads the rest (in a file: failOnDataLoss = false for the source)"
    ),
    NO_MARKER: (
        "the brokers have no marker of query 1: "
        "--at-least-once writes it (in a file: exactlyOnceFrom = 7 for the sink)"
    ),
    RESTORED: (
        "the topic has the rows up to micro-batch 1000000, and micro-batch 1000000 now has other offsets, from an older"
        " copy of the checkpoint: restore the newest checkpoint, or name a new checkpoint and a new topic (in a file:"
        " another transactionalIdPrefix for the sink writes the rows again)"
    ),
    NO_TIME: (
        'The event time `ts` has the invalid type "BIGINT", but expected "TIMESTAMP": convert the column in a '
        "step, for example with timestamp_millis, and put the watermark there"
    ),
    PYTHON: "ZeroDivisionError: division by zero: --debug prints the whole error",
}


@pytest.mark.parametrize("text", LINES, ids=LINES.values())
def test_error_of_spark_becomes_one_line(text):
    assert str(explain(SparkError(text))) == LINES[text]


def test_failed_stream_is_explained_by_the_cause_of_its_error():
    around = SparkError("[STREAM_FAILED] Query [id = 1] terminated with exception: boom")
    around._cause = SparkError(UNREACHABLE)
    assert str(explain(around)).startswith("no broker answers")


class JavaError(Exception):
    """An error as py4j raises it: py4j's own text, followed by the message of the Java exception."""

    java_exception = object()


def test_error_of_java_is_explained_by_javas_message():
    text = "An error occurred while calling o2.start.\n: java.io.IOException: mkdir of file:/proc/x failed"
    assert str(explain(JavaError(text))) == (
        "IOException: mkdir of file:/proc/x failed: check the path and its permissions"
    )


def test_operating_system_error_names_the_file():
    error = FileNotFoundError(2, "No such file or directory", "/proc/x")
    assert str(explain(error)) == (
        "/proc/x: No such file or directory: check the path and its permissions"
    )


def test_error_of_a_missing_topic_names_the_command_to_list_topics():
    error = KafkaError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "clicks: no such topic; correct option subscribe, or create it",
    )
    assert str(explain(error)) == "clicks: no such topic: minikafka topics list shows the topics"


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("no broker answers (h:1: refused)", "check --bootstrap, and that a broker runs"),
        ("no leader answers for t-0, t-1", "minikafka cluster health shows why"),
    ],
)
def test_error_of_an_unreachable_cluster_says_what_to_check(text, advice):
    assert str(explain(Unreachable(text))) == f"{text}: {advice}"


def test_error_raised_by_minikafka_is_kept_unchanged():
    error = ConfigError("unknown option x")
    assert explain(error) is error


def test_error_of_a_silent_spark_master_says_what_to_check():
    error = JavaError(
        "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
        ": java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."
    )
    assert str(explain(error)) == (
        "Spark has stopped, or the master does not answer: check --master, and that Spark runs there"
    )
