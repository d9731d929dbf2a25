"""Conversion of Spark's errors to one line that helps the user to correct the mistake.

Spark's error texts contain class names, a SQLSTATE, the query plan and the Java stack trace. This module
keeps only the sentence about the cause, and adds advice for frequent errors.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from minikafka.base.errors import MinikafkaError

_OURS: Final = re.compile(r"\bminikafka(?:\.\w+)+\.\w+: (?P<text>[^\n]+)")
"""Matches an error that minikafka raised in a Python worker, inside the text of Spark's error."""
_CONDITION: Final = re.compile(r"\[(?P<name>[A-Z][A-Z0-9_.]+)\] (?P<text>[^\n]*)")
"""Matches an error with a Spark error name, such as `[TABLE_OR_VIEW_NOT_FOUND]`."""
_ENDING: Final = re.compile(r"\s*SQLSTATE: .*")
_WRAPPERS: Final = re.compile(
    r"PYTHON_EXCEPTION|PYTHON_(?:STREAMING_)?DATA_SOURCE\w*_ERROR|STREAM_FAILED|TASK_WRITE_FAILED|FAILED_EXECUTE_UDF|"
    r"FAILED_READ_FILE.*|INTERNAL_ERROR.*|FOREACH_BATCH_USER_FUNCTION_ERROR"
)
"""Matches the names of Spark errors that only wrap another error."""
_RAISED: Final = re.compile(
    r"(?:^|[ :])(?:[a-z]\w*\.)*(?P<text>[A-Z]\w*(?:Error|Exception): "
    r"(?!.*(?:Error|Exception): )[^\n]+)",
    re.MULTILINE,
)
"""Matches the innermost Python or Java error in a line, without the package name."""
_LINE_MAX: Final = 300
_DEBUG: Final = "--debug prints the whole error"


class PipelineError(MinikafkaError):
    """A pipeline failed; the text is one line that says what is wrong and what to do."""


class _Known(NamedTuple):
    """Advice (`fix`) for errors whose text contains a pattern. `text`, if not "", replaces Spark's text."""

    pattern: re.Pattern[str]
    fix: str
    text: str = ""


def _known(pattern: str, fix: str, text: str = "") -> _Known:
    return _Known(re.compile(pattern), fix, text)


_FIXES: Final = (
    _known(r"(?<!no answer \()Connection refused", "check --bootstrap, and that a broker runs"),
    _known(
        r"stopped SparkContext|All masters are unresponsive",
        "check --master, and that Spark runs there",
        "Spark has stopped, or the master does not answer",
    ),
    _known(
        r"There are \[\d+\] sources in the checkpoint offsets and now there are \[\d+\]",
        "the sources differ; name a new checkpoint directory",
        "the checkpoint belongs to another query",
    ),
    _known(
        r"STATE_STORE_(KEY|VALUE|SCHEMA|INVALID)|StateSchemaNotCompatible|number of stateful",
        "the groups or aggregates differ; name a new checkpoint directory",
        "the checkpoint belongs to another query",
    ),
    _known(
        r"EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE",
        "convert the column in a step, for example with timestamp_millis, and put the watermark there",
    ),
    _known(
        r"No space left on device(?!: make room)",
        "make room on the disk, also on that of the checkpoint, and start again, which continues",
    ),
    _known(
        r"Mkdirs failed|mkdir of \S+ failed|Permission denied|\[[Ee]rrno (?:2|13|17|20|21|30)\]",
        "check the path and its permissions",
    ),
    _known(
        r"dropDuplicatesWithinWatermark is not supported on streaming \S+ without watermark",
        "the rows of this step have no watermark: add watermark = { column, delay } to the step",
        "drop_duplicates needs a watermark",
    ),
    _known(
        r"STREAMING_OUTPUT_MODE|output mode not supported|Append output mode",
        'use mode = "update" or "complete", or a watermark on a column of time that the query groups by',
    ),
    _known(
        r"TABLE_OR_VIEW_NOT_FOUND", "the SQL of a step reads from sources and earlier steps by name"
    ),
    _known(
        r"`writeStream` can be called only on streaming",
        'select from a source or from an earlier step, or set trigger = "batch"',
        "the last step reads no records of a source",
    ),
    _known(
        r"No FileSystem for scheme",
        "check the URI of the checkpoint, and that Spark has the jars of its store",
    ),
    _known(r"Could not parse Master URL|All masters are unresponsive", "check --master"),
    _known(
        r"ModuleNotFoundError: No module named", "the Python of Spark's workers lacks this package"
    ),
)

_ADVICE: Final = (
    (re.compile(r"(no broker answers \(.+\))"), r"\1: check --bootstrap, and that a broker runs"),
    (
        re.compile(r"(no leader answers for .+)"),
        r"\1: minikafka cluster health shows why",
    ),
    (
        re.compile(r"(?:UNKNOWN_TOPIC_OR_PARTITION: )?(.+: no such topic); correct option \w+, .+"),
        r"\1: minikafka topics list shows the topics",
    ),
    (
        re.compile(r"(.+); set failOnDataLoss to false to read the rest"),
        r"\1: --skip-lost reads the rest (in a file: failOnDataLoss = false for the source)",
    ),
    (
        re.compile(r"(.+, or name a new checkpoint and a new topic); another transactionalIdPre.+"),
        r"\1 (in a file: another transactionalIdPrefix for the sink writes the rows again)",
    ),
    (
        re.compile(
            r"(.+); to write micro-batch \d+, also if .+, set option exactlyOnceFrom to (\d+)"
        ),
        r"\1: --at-least-once writes it (in a file: exactlyOnceFrom = \2 for the sink)",
    ),
)
"""Patterns of the data source's errors, each with a replacement for the error's text.

The original texts name options of the data source. The replacements name options of minikafka's commands.
"""


def explain(error: BaseException) -> MinikafkaError:
    """Return the error as a MinikafkaError with a text of one line."""
    if isinstance(error, MinikafkaError):
        advised = _advised(str(error))
        return error if advised is None else PipelineError(advised)
    if isinstance(error, OSError) and error.filename:
        text = f"{os.fsdecode(error.filename)}: {error.strerror}"
        return PipelineError(f"{text}: check the path and its permissions")
    texts = list(_texts(error))
    found = _sentence(texts)
    if advised := _advised(found):
        return PipelineError(advised)
    for known in _FIXES:
        if any(known.pattern.search(text) for text in texts):
            return PipelineError(_joined(known.text or found, known.fix))
    is_clear = any(_OURS.search(text) or any(_named(text)) for text in texts)
    return PipelineError(found if is_clear else _joined(found, _DEBUG))


def _advised(text: str) -> str | None:
    """Return the text by which `_ADVICE` replaces an error text; None if no pattern matches the whole error text."""
    for pattern, advice in _ADVICE:
        if found := pattern.fullmatch(text):
            return found.expand(advice)
    return None


def _joined(text: str, fix: str) -> str:
    return f"{text.rstrip('.')}: {fix}" if fix else text


def _sentence(texts: list[str]) -> str:
    """Return the clearest sentence in the texts of an error and its causes.

    An error of minikafka is preferred. The next choices are a Spark error with a name (see `_named`), a Python or
    Java error, and the first line.
    """
    joined = "\n".join(texts)
    found = [match["text"] for match in _OURS.finditer(joined)] or list(_named(joined))
    found += [match["text"] for match in _RAISED.finditer(joined)]
    found += [line for line in joined.splitlines() if line.strip()] or ["unknown error"]
    return _ENDING.sub("", found[0]).strip()[:_LINE_MAX]


def _named(text: str) -> Iterator[str]:
    """Yield the text of each Spark error with a name such as `[TABLE_OR_VIEW_NOT_FOUND]`.

    Errors that only wrap another error are left out.
    """
    for match in _CONDITION.finditer(text):
        if not _WRAPPERS.fullmatch(match["name"]):
            yield match["text"]


def _texts(error: BaseException | None) -> Iterator[str]:
    """Yield the texts of an error and of its causes, the outermost error first."""
    while error is not None:
        # A Java error's text begins with a sentence of py4j that gives no reason. Without the type name in front, the
        # pattern `_RAISED` does not match this sentence.
        is_of_java = hasattr(error, "java_exception")
        named = str(error) if is_of_java else f"{type(error).__name__}: {error}"
        yield getattr(error, "_desc", None) or named
        error = getattr(error, "_cause", None) or error.__cause__
