"""Conversion of records to the columns of a view, and of columns to records.

A record that cannot be decoded does not fail the query. Its columns that cannot be read are null. Its column
`_malformed` has the text of the record for json and csv, or the reason for a schema registry; it is null for other
records.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructField, StructType

from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.spark.pipelines.run.definition import Decode, Encode, EncodeKey, Watermark
from minikafka.spark.pipelines.streams.dead_letters import PLACE, PLACES, first_places
from minikafka.spark.registry import encoded
from minikafka.spark.registry import functions as registry
from minikafka.spark.registry.records import REASON as FAILURE
from minikafka.spark.registry.records import VALUE

MALFORMED: Final = "_malformed"
"""Name of the column that marks malformed records. It is null for valid records."""
REASON: Final = "_reason"
"""Name of the column that says why a record cannot be decoded. It is null for valid records."""
RECORDS: Final = "records"
SHOWN_MAX: Final = 100
"""Maximum length of a value in the text that says why a record is malformed."""
_KEY: Final = "_decoded_key"
_METADATA: Final = (*PLACE, "timestamp")


def decoded(frame: DataFrame, decode: Decode, key: Decode | None = None) -> DataFrame:
    """Return the rows of a source with decoded records. `key`: how keys are decoded.

    For json, csv and a schema registry, the columns of the schema come first. Then come `_key`, `_topic`, `_partition`,
    `_offset`, `_timestamp`, `_headers` if the source has headers, and `_malformed`.
    """
    if decode.format in ("raw", "string"):
        return _with_values(frame, decode, key)
    parsed, reason = _marked(frame, decode, key)
    names = [*_METADATA, *(["headers"] if "headers" in frame.columns else [])]
    metadata = [_decoded_key(key).alias("_key")]
    metadata += [f.col(name).alias(f"_{name}") for name in names]
    fields = _fields(parsed, decode)
    taken = {"_key", MALFORMED, *(f"_{name}" for name in names)}
    if hidden := sorted(taken.intersection(_names(parsed, decode))):
        raise ConfigError(
            f"schema: {hidden[0]} is the name of a column of the record: name a schema with another name for it"
        )
    return parsed.select(*fields, *metadata, reason.alias(MALFORMED))


def _with_values(frame: DataFrame, decode: Decode, key: Decode | None) -> DataFrame:
    """Return the records with values as bytes or text."""
    names = ("key", "value") if decode.format == "string" else ()
    texts = {name: text(name) for name in names}
    if key is None:
        return frame.withColumns(texts) if texts else frame
    marked = _key_marked(frame, key)
    columns = texts | {"key": _decoded_key(key), MALFORMED: _key_failure()}
    return marked.withColumns(columns).drop(_KEY)


def _decoded_key(key: Decode | None) -> Column:
    return text("key") if key is None else f.col(_KEY).getField(VALUE)


def _key_marked(frame: DataFrame, key: Decode) -> DataFrame:
    """Return the rows with the column `_decoded_key`."""
    assert key.reading is not None, "a run requests the schemas at its start"
    return frame.withColumn(_KEY, registry.decoded_column(key.reading, frame, "key"))


def _key_failure() -> Column:
    """Return why a key cannot be decoded; null if it can."""
    return f.concat(f.lit("key: "), f.col(_KEY).getField(FAILURE))


def _marked(frame: DataFrame, decode: Decode, key: Decode | None) -> tuple[DataFrame, Column]:
    """Return the rows with the columns `_decoded` and, for `key`, `_decoded_key`.

    The second result is a column that is not null if a record is malformed.
    """
    if decode.reading is not None:
        column = registry.decoded_column(decode.reading, frame, "value")
        failure = f.col("_decoded").getField(FAILURE)
    elif decode.schema:
        _check_known_options(frame.sparkSession, decode)
        column = _parsed(decode, _schema(decode.schema))
        failure = f.col("_decoded").getField(MALFORMED)
    else:
        column = failure = f.lit(None).cast("string")
    parsed = frame.withColumn("_decoded", column)
    if key is None:
        return parsed, failure
    return _key_marked(parsed, key), f.coalesce(failure, _key_failure())


def _names(parsed: DataFrame, decode: Decode) -> list[str]:
    """Return the names of the columns of the schema; an empty list if a registry's schema is not a record."""
    if decode.reading is None:
        return _schema(decode.schema).names
    kind = parsed.schema["_decoded"].dataType
    assert isinstance(kind, StructType), "a struct of value and reason"
    value = kind[VALUE].dataType
    return value.names if isinstance(value, StructType) else []


def _fields(parsed: DataFrame, decode: Decode) -> list[Column]:
    value = f.col("_decoded") if decode.reading is None else f.col("_decoded").getField(VALUE)
    names = _names(parsed, decode)
    return [value.getField(name).alias(name) for name in names] or [value.alias(VALUE)]


def malformed(frame: DataFrame, decode: Decode, key: Decode | None = None) -> DataFrame:
    """Return the malformed records of a source, with the column `_reason` that says what is wrong."""
    parsed, failure = _marked(frame, decode, key)
    found = parsed.where(failure.isNotNull())
    if not decode.schema:
        return found.withColumn(REASON, failure)
    reason = _mismatch(decode)
    if key is not None:
        is_value = f.col("_decoded").getField(MALFORMED).isNotNull()
        reason = f.when(is_value, reason).otherwise(_key_failure())
    return found.withColumn(REASON, reason)


def _mismatch(decode: Decode) -> Column:
    """Return why a value does not match the schema of json or csv."""
    schema = _schema(decode.schema)
    whole = f.lit(f"the value does not match the schema {decode.schema}")
    if decode.format != "json":
        return whole
    wrong = [_type_error(field) for field in schema.fields if "'" not in field.name]
    named = f.array_compact(f.array(*wrong)) if wrong else f.array().cast("array<string>")
    return f.when(f.size(named) > 0, f.concat_ws(", ", named)).otherwise(whole)


def _type_error(field: StructField) -> Column:
    """Return why a field has the wrong type; null if it is valid or missing.

    A field has the wrong type if the JSON value has it, but it is null in the decoded record.
    """
    given = f.get_json_object(text("value"), f"$['{field.name}']")
    name = f.lit(f"{field.name} is not of the type {field.dataType.simpleString()}: ")
    is_wrong = given.isNotNull() & f.col("_decoded").getField(field.name).isNull()
    return f.when(is_wrong, f.concat(name, f.left(given, f.lit(SHOWN_MAX))))


def text(name: str) -> Column:
    """Return a binary column as text, with replacement characters for invalid UTF-8, like Kafka's Java clients.

    Spark's cast would keep the invalid bytes, which readers of Parquet and JSON reject.
    """
    return f.make_valid_utf8(f.col(name).cast("string"))


def _schema(ddl: str) -> StructType:
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType), "DDL of columns"
    if taken := [name for name in schema.names if name.startswith("_")]:
        raise ConfigError(
            f"schema: {taken[0]} must not begin with _, which marks the columns of the record"
        )
    return schema


def _check_known_options(spark: SparkSession, decode: Decode) -> None:
    """Raise ConfigError for an option that Spark's function does not know and would ignore."""
    jvm: Any = spark._jvm
    options = jvm.org.apache.spark.sql.catalyst
    kind = options.json.JSONOptions if decode.format == "json" else options.csv.CSVOptions
    known = {name.lower(): name for name in kind.getAllOptions().mkString(",").split(",")}
    for name in decode.options:
        if name.lower() not in known:
            near = difflib.get_close_matches(name.lower(), known, n=1)
            hint = (
                f"did you mean {known[near[0]]}?" if near else f"see Spark's from_{decode.format}"
            )
            raise ConfigError(f"options: unknown key {name}: {hint}")


def _parsed(decode: Decode, schema: StructType) -> Column:
    whole = StructType([*schema.fields]).add(MALFORMED, "string")
    options = {**decode.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": MALFORMED}
    if decode.format == "json":
        return f.from_json(text("value"), whole, options)
    return f.from_csv(text("value"), whole.toDDL(), options)


def observed(frame: DataFrame, name: str | Observation) -> DataFrame:
    """Return `frame` with an observation in which Spark counts the rows and the malformed rows.

    `name`: the name of the observation for a stream, an Observation for a batch query.
    """
    counts = [f.count(f.lit(1)).alias(RECORDS)]
    if MALFORMED in frame.columns:
        is_malformed = f.col(MALFORMED).isNotNull()
        counts.append(f.count_if(is_malformed).alias("malformed"))
        if {f"_{name}" for name in PLACE} <= {*frame.columns}:
            counts.append(first_places(is_malformed, "_").alias(PLACES))
    return frame.observe(name, *counts)


def without_duplicates(frame: DataFrame, columns: Sequence[str], view: str) -> DataFrame:
    """Return the frame without duplicates within the watermark. Raises ConfigError for an unknown column."""
    known = {name.lower() for name in frame.columns}
    if missing := [name for name in columns if name.lower() not in known]:
        raise ConfigError(
            f"{view}: drop_duplicates: there is no column {', '.join(missing)}: the columns are "
            f"{', '.join(frame.columns)}"
        )
    return frame.dropDuplicatesWithinWatermark([*columns])


def with_watermark(frame: DataFrame, watermark: Watermark | None, view: str) -> DataFrame:
    """Return the frame with the watermark. Raises ConfigError if the view lacks the watermark's column."""
    if watermark is None:
        return frame
    if watermark.column not in frame.columns:
        raise ConfigError(
            f"{view}: the watermark's column {watermark.column} is not among its columns "
            f"{', '.join(frame.columns)}"
        )
    return frame.withWatermark(watermark.column, watermark.delay)


def as_records(frame: DataFrame, encode: Encode, encode_key: EncodeKey | None) -> DataFrame:
    """Return each row as a record whose value has all columns, except one that `encode_key` names as the key."""
    key = None if encode_key is None else encode_key.column
    row = _struct([name for name in frame.columns if name != key])
    columns = [(f.to_json(row) if encode.format == "json" else row).alias("value")]
    if encode.key is not None:
        _check_columns(frame, "encode", [encode.key])
        columns.append(f.col(f"`{encode.key}`").cast("string").alias("key"))
    if encode_key is not None:
        _check_columns(frame, "encode_key", encode_key.columns or [str(key)])
        found = f.col(f"`{key}`") if key else _struct(encode_key.columns)
        columns.append(found.alias("key"))
    records = frame.select(*columns)
    if encode.format != "json":
        records = _encoded(records, encode, "value", "encode")
    return records if encode_key is None else _encoded(records, encode_key, "key", "encode_key")


def _check_columns(frame: DataFrame, table: str, names: Sequence[str]) -> None:
    if missing := [name for name in names if name not in frame.columns]:
        raise ConfigError(
            f"[sink] {table}: there is no column {missing[0]} for the key: the columns are "
            f"{', '.join(frame.columns)}"
        )


def _struct(names: Sequence[str]) -> Column:
    return f.struct(*(f.col(f"`{name}`") for name in names))


def _encoded(frame: DataFrame, encode: Encode | EncodeKey, column: str, table: str) -> DataFrame:
    try:
        return encoded(frame, encode.format, encode.options, column)
    except MinikafkaError as error:
        raise ConfigError(f"[sink] {table}: {error}") from error
